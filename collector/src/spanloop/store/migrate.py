"""Versioned migrations of the ClickHouse schema: the files ``migrations/NNNN_name.sql``, in order.

Invariant: a database at version n has run exactly the files 1 to n of this code, verified by checksum. The table
``schema_migrations`` is a journal: ``started`` before a file's first statement, ``applied`` after its last. Every
statement is idempotent, so a file that was started but not applied is run again, by one process or by two at once.
The first file is the initial schema; see `adoption` for databases from before it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version as package_version
from importlib.resources import files
from itertools import chain
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import StoreError

from .adoption import FORMER_CHECKSUMS, is_adoptable
from .client import Address, Connection
from .cluster import Form, check_shards, shard_table
from .cluster.sharding import SHARDINGS

_FILE_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")
_END_OF_STATEMENT: Final = re.compile(r";[ \t]*(?:\n|$)")
_COMMENT_LINE: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_SUBJECT: Final = re.compile(
    r"(CREATE )?"
    r"(?:(?:TABLE|(?:MATERIALIZED )?VIEW) IF NOT EXISTS|DROP (?:TABLE|VIEW) IF EXISTS|ALTER TABLE|INSERT INTO) (\w+)"
)
"""Whether a statement creates a table, and the table that it creates, changes or fills."""
_RENAME: Final = re.compile(r"RENAME TABLE (\w+) TO (\w+)")
"""Skipped when the new name exists, so that it can run again, and in two processes at once. The old name is free then:
nothing may create it again before the rest of the migration gives it a new meaning."""
_EMPTY_DEFINITION: Final = "Empty query (in file"
_STATEMENT_TIMEOUT_S: Final = 6 * 3_600
"""Long, because a statement may read all spans."""
_JOURNAL: Final = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version UInt32,
    name String,
    checksum String,
    state LowCardinality(String) COMMENT 'started or applied',
    spanloop_version String,
    recorded_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = MergeTree
ORDER BY (version, recorded_at)
"""


_TABLES: Final = "SELECT name FROM system.tables WHERE database = currentDatabase()"
_TABLES_OF_ALL_SERVERS: Final = """
SELECT name FROM clusterAllReplicas({cluster:Identifier}, system.tables)
WHERE database = {database:String}
GROUP BY name
HAVING count() >= (SELECT count() FROM clusterAllReplicas({cluster:Identifier}, system.one))
"""
_OF_THOSE_THAT_ANSWER: Final = {"skip_unavailable_shards": "1"}
"""With `clusterAllReplicas`: a role starts while a server is down. A statement that changes the schema fails then, or
the Keeper keeps it for that server, so the server has the schema of the others when it is back."""


class Migration(NamedTuple):
    """One file of ``migrations/``."""

    version: int
    name: str
    checksum: str
    statements: Sequence[str]


class _Applied(NamedTuple):
    checksum: str
    name: str
    spanloop_version: str


@cache
def migrations() -> Sequence[Migration]:
    """Return all migrations of this code in order; versions are 1, 2, … without gaps."""
    folder = files("spanloop.store") / "migrations"
    parsed = [
        parse(entry.name, entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(parsed)


def parse(file_name: str, sql: str) -> Migration:
    """Split a file, named ``NNNN_name.sql``, into statements, which end with a semicolon at the end of a line."""
    match = _FILE_NAME.fullmatch(file_name)
    if match is None:
        raise StoreError(f"{file_name} is not a migration: expected NNNN_name.sql.")
    bare = _COMMENT_LINE.sub("", sql)
    statements = [part.strip() for part in _END_OF_STATEMENT.split(bare) if part.strip()]
    return Migration(int(match[1]), match[2], hashlib.sha256(sql.encode()).hexdigest()[:16], statements)


def migrate(address: Address, todo: Sequence[Migration] | None = None) -> None:
    """Create the database if it is missing and migrate it to this code's version.

    Args:
        address: Address of the server and name of the database.
        todo: Migrations to apply; default all migrations of this code.

    Raises:
        StoreError: ClickHouse is unreachable, the schema is newer, edited or older than the initial one, a table is
            not spanloop's, or a statement failed.
    """
    known = migrations() if todo is None else todo
    _create_database(address)
    connection = Connection(address, response_timeout_s=_STATEMENT_TIMEOUT_S)
    try:
        _bring_up(connection, address, known)
    finally:
        connection.close()


def check_schema(connection: Connection, address: Address) -> None:
    """Check that a database has this code's schema; it changes nothing.

    Raises:
        StoreError: The database has no tables of spanloop, or its schema is older, newer or edited.
    """
    applied: Mapping[int, _Applied] = {}
    if "schema_migrations" in _tables(connection, "reading the schema"):
        applied = _read_journal(connection, "applied")
    _check(address, applied, migrations())
    if len(applied) < len(migrations()):
        raise StoreError(
            f"Database {address.database!r} at {address} has schema version {max(applied, default=0)}; this spanloop "
            f"{package_version('spanloop')} reads version {len(migrations())}.",
            next_step="Start this version's spanloop up, or a role that writes, once: it migrates the database.",
        )


def _create_database(address: Address) -> None:
    connection = Connection(address, database="default")
    doing = f"creating database {address.database!r}"
    try:
        # Checked first: a user with rights on this database only may not run CREATE DATABASE, even IF NOT EXISTS.
        cluster = connection.cluster
        is_one = cluster is None or cluster.form is Form.CLOUD
        databases, servers = (
            table if is_one else f"clusterAllReplicas('{address.cluster}', {table})"
            for table in ("system.databases", "system.one")
        )
        sql = (
            f"SELECT count() < (SELECT count() FROM {servers}) AS is_missing FROM {databases} "  # noqa: S608 - checked
            "WHERE name = {name:String}"
        )
        parameters = {"name": address.database}
        if connection.query(sql, doing=doing, parameters=parameters, settings=_OF_THOSE_THAT_ANSWER)["is_missing"][0]:
            connection.command(f"CREATE DATABASE IF NOT EXISTS `{address.database}`", doing=doing)
    finally:
        connection.close()


def _bring_up(connection: Connection, address: Address, known: Sequence[Migration]) -> None:
    doing = f"migrating database {address.database!r}"
    tables = _tables(connection, doing)
    if "schema_migrations" not in tables:
        _reject_foreign_tables(address, tables, known)
        connection.command(_JOURNAL, doing=doing)
    applied = _read_journal(connection, "applied")
    if not applied and is_adoptable(connection, address, tables):
        _record(connection, known[0], "applied")
        applied = _read_journal(connection, "applied")
    _check(address, applied, known)
    # Listed after the journal, so that tables of a migration that another process has just applied are included; what
    # was started is read after the list, so that a name that another process has just renamed is known.
    tables = _tables(connection, doing)
    started = _read_journal(connection, "started")
    unfinished = [known[version - 1] for version in started if version not in applied and version <= len(known)]
    renamed = _renamed(tables, unfinished)
    _recreate(connection, tables | renamed, [migration for migration in known if migration.version in applied])
    for migration in known:
        if migration.version not in applied:
            _apply(connection, migration)
    cluster = connection.cluster
    if cluster is not None and cluster.is_sharded and known:
        check_shards(
            cluster,
            lambda sql, parameters: connection.query(sql, doing=doing, parameters=parameters),
            lambda rows: connection.insert("schema_migrations", rows),
        )


def _tables(connection: Connection, doing: str) -> set[str]:
    """Return the names of the tables and views; on a cluster, of those that each server that answers has whole."""
    cluster = connection.cluster
    if cluster is None or cluster.form is Form.CLOUD:
        return {str(name) for name in connection.query(_TABLES, doing=doing)["name"]}
    parameters = {"cluster": cluster.name, "database": cluster.database}
    listed = connection.query(
        _TABLES_OF_ALL_SERVERS, doing=doing, parameters=parameters, settings=_OF_THOSE_THAT_ANSWER
    )
    names = {str(name) for name in listed["name"]}
    return {name for name in names if name not in SHARDINGS or shard_table(name) in names}


def _renamed(tables: set[str], unfinished: Sequence[Migration]) -> set[str]:
    """Return the tables that unfinished migrations have renamed."""
    renames = [_RENAME.match(statement) for migration in unfinished for statement in migration.statements]
    return {rename[1] for rename in renames if rename is not None and rename[2] in tables}


def _read_journal(connection: Connection, state: str) -> Mapping[int, _Applied]:
    """Return the entries in a state by version, without those of the migrations before the initial one."""
    rows = connection.query(
        "SELECT version, checksum, name, spanloop_version FROM schema_migrations "
        "WHERE state = {state:String} AND checksum NOT IN {former:Array(String)} ORDER BY recorded_at",
        doing="reading schema_migrations",
        parameters={"state": state, "former": list(FORMER_CHECKSUMS)},
    )
    return {int(row[0]): _Applied(str(row[1]), str(row[2]), str(row[3])) for row in rows.iter_rows()}


def _check(address: Address, applied: Mapping[int, _Applied], known: Sequence[Migration]) -> None:
    newest = known[-1].version if known else 0
    for number, entry in sorted(applied.items()):
        if number > newest:
            raise StoreError(
                f"Database {address.database!r} at {address} has schema version {max(applied)} ({entry.name}), by "
                f"spanloop {entry.spanloop_version}; this is spanloop {package_version('spanloop')}, which knows "
                f"versions up to {newest}.",
                next_step=f"Upgrade to spanloop {entry.spanloop_version} or newer: pip install /path/to/spanloop.",
            )
        expected = known[number - 1].checksum
        if entry.checksum != expected:
            raise StoreError(
                f"Database {address.database!r} at {address} ran another text of migration {number} ({entry.name}): "
                f"got checksum {entry.checksum}, expected {expected}. "
                f"It was created by spanloop {entry.spanloop_version}.",
                next_step="Use the spanloop that created it, or another database or data directory.",
            )


def _reject_foreign_tables(address: Address, tables: set[str], known: Sequence[Migration]) -> None:
    own_tables = {name for migration in known for statement in migration.statements for name in _created(statement)}
    conflicts = sorted(tables & own_tables)
    if conflicts:
        raise StoreError(
            f"Database {address.database!r} at {address} already has {', '.join(conflicts)}, not created by spanloop.",
            next_step="Name another database in the ClickHouse URL; spanloop creates it.",
        )


def _recreate(connection: Connection, tables: set[str], applied: Sequence[Migration]) -> None:
    """Run the statements of missing tables again; see `spanloop.embedded_clickhouse.empty_definitions`.

    A name that several migrations create is the last one's.
    """
    pending: dict[str, list[tuple[Migration, int, str]]] = {}
    for migration in applied:
        for number, statement in enumerate(migration.statements, start=1):
            subject = _SUBJECT.match(statement)
            if subject is not None and subject[2] not in tables:
                if subject[1]:
                    pending.pop(subject[2], None)
                pending.setdefault(subject[2], []).append((migration, number, statement))
    for migration, number, statement in sorted(chain.from_iterable(pending.values()), key=lambda item: item[:2]):
        _run(connection, migration, number, statement)


def _created(statement: str) -> Sequence[str]:
    return re.findall(r"^CREATE (?:TABLE|(?:MATERIALIZED )?VIEW) IF NOT EXISTS (\w+)", statement)


def _apply(connection: Connection, migration: Migration) -> None:
    _record(connection, migration, "started")
    try:
        for number, statement in enumerate(migration.statements, start=1):
            _run(connection, migration, number, statement)
    except StoreError:
        # Another process may have gone on to a later migration, whose tables this one's statements do not fit.
        if migration.version in _read_journal(connection, "applied"):
            return
        raise
    _record(connection, migration, "applied")


def _run(connection: Connection, migration: Migration, number: int, statement: str) -> None:
    doing = f"statement {number} of migration {migration.version} ({migration.name})"
    rename = _RENAME.match(statement)
    try:
        if rename is None or rename[2] not in _tables(connection, doing):
            connection.command(statement, doing=doing)
    except StoreError as error:
        if rename is not None and rename[2] in _tables(connection, doing):
            return  # another process was faster
        subject = _SUBJECT.match(statement)
        if _EMPTY_DEFINITION not in str(error) or subject is None:
            raise
        raise StoreError(
            f"ClickHouse has lost the definition of {subject[2]!r}, which {doing} changes: {error.what}",
            next_step="Free disk space and start spanloop again: its own server drops a table without rows, and the "
            "migration recreates it. On your own server, for a view: DROP VIEW, then start spanloop again.",
        ) from error


def _record(connection: Connection, migration: Migration, state: str) -> None:
    row = {
        "version": migration.version,
        "name": migration.name,
        "checksum": migration.checksum,
        "state": state,
        "spanloop_version": package_version("spanloop"),
    }
    connection.insert("schema_migrations", pl.DataFrame([row], schema_overrides={"version": pl.UInt32}))
