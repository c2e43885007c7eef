"""Versioned migrations of the ClickHouse schema: the files ``migrations/NNNN_name.sql``, in order.

Invariant: a database at version n has run exactly the files 1 to n of this code, checked by checksum. The table
``schema_migrations`` is a journal: ``started`` before a file's first statement, ``applied`` after its last. Every
statement is idempotent, so a file that was started and not applied is run again, by whoever comes first, or by two.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version as package_version
from importlib.resources import files
from typing import Final, NamedTuple

import polars as pl

from spanloop.semconv.errors import StoreError

from .client import Address, Connection

_FILE_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")
_END_OF_STATEMENT: Final = re.compile(r";[ \t]*(?:\n|$)")
_COMMENT_LINE: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
_SUBJECT: Final = re.compile(
    r"(?:CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS|DROP (?:TABLE|VIEW) IF EXISTS|ALTER TABLE|INSERT INTO) (\w+)"
)
"""The table that a statement makes, changes or fills."""
_EMPTY_DEFINITION: Final = "Empty query (in file"
_STATEMENT_TIMEOUT_S: Final = 6 * 3_600
"""A statement may read every span that there is."""
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
    """All migrations of this code, in order; versions run from 1 without a gap."""
    folder = files("spanloop.store") / "migrations"
    found = [
        parse(entry.name, entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def parse(file_name: str, sql: str) -> Migration:
    """Split one file; its statements end with a semicolon at the end of a line.

    Raises:
        StoreError: A file name that is not ``NNNN_name.sql``.
    """
    match = _FILE_NAME.fullmatch(file_name)
    if match is None:
        raise StoreError(f"{file_name} is no migration: expected NNNN_name.sql.")
    bare = _COMMENT_LINE.sub("", sql)
    statements = [part.strip() for part in _END_OF_STATEMENT.split(bare) if part.strip()]
    return Migration(int(match[1]), match[2], hashlib.sha256(sql.encode()).hexdigest()[:16], statements)


def migrate(address: Address, todo: Sequence[Migration] | None = None) -> None:
    """Create the database if it is missing and bring it to this code's version.

    Args:
        address: The server and the database.
        todo: The migrations of this code; default those that are packaged.

    Raises:
        StoreError: Out of reach, a newer or edited schema, tables that are not ours, or a statement that failed.
    """
    known = migrations() if todo is None else todo
    _create_database(address)
    connection = Connection(address, answer_timeout_s=_STATEMENT_TIMEOUT_S)
    try:
        _bring_up(connection, address, known)
    finally:
        connection.close()


def _create_database(address: Address) -> None:
    connection = Connection(address, database="default")
    doing = f"creating database {address.database!r}"
    try:
        # Asked first: whoever owns just this database has no right to create one, even IF NOT EXISTS.
        sql = "SELECT count() AS found FROM system.databases WHERE name = {name:String}"
        if not connection.query(sql, doing=doing, parameters={"name": address.database})["found"][0]:
            connection.command(f"CREATE DATABASE IF NOT EXISTS `{address.database}`", doing=doing)
    finally:
        connection.close()


def _bring_up(connection: Connection, address: Address, known: Sequence[Migration]) -> None:
    doing = f"migrating database {address.database!r}"
    tables = _tables(connection, doing)
    if "schema_migrations" not in tables:
        _refuse_foreign(address, tables, known)
        connection.command(_JOURNAL, doing=doing)
    applied = _read_journal(connection)
    _check(address, applied, known)
    # Listed after the journal: what another process has just applied is there.
    _remake(connection, _tables(connection, doing), [migration for migration in known if migration.version in applied])
    for migration in known:
        if migration.version not in applied:
            _apply(connection, migration)


def _tables(connection: Connection, doing: str) -> set[str]:
    listed = connection.query("SELECT name FROM system.tables WHERE database = currentDatabase()", doing=doing)
    return {str(name) for name in listed["name"]}


def _read_journal(connection: Connection) -> Mapping[int, _Applied]:
    rows = connection.query(
        "SELECT version, checksum, name, spanloop_version FROM schema_migrations "
        "WHERE state = 'applied' ORDER BY recorded_at",
        doing="reading schema_migrations",
    )
    return {int(row[0]): _Applied(str(row[1]), str(row[2]), str(row[3])) for row in rows.iter_rows()}


def _check(address: Address, applied: Mapping[int, _Applied], known: Sequence[Migration]) -> None:
    newest = known[-1].version if known else 0
    for number, found in sorted(applied.items()):
        if number > newest:
            raise StoreError(
                f"Database {address.database!r} at {address} has schema version {max(applied)} ({found.name}), made by "
                f"spanloop {found.spanloop_version}; this is spanloop {package_version('spanloop')}, which knows "
                f"versions up to {newest}.",
                next_step=f"Upgrade: pip install 'spanloop>={found.spanloop_version}'.",
            )
        expected = known[number - 1].checksum
        if found.checksum != expected:
            raise StoreError(
                f"Database {address.database!r} at {address} ran another text of migration {number} ({found.name}): "
                f"got checksum {found.checksum}, expected {expected}. "
                f"It was made by spanloop {found.spanloop_version}.",
                next_step="Use the spanloop that made it, or another database or data directory.",
            )


def _refuse_foreign(address: Address, tables: set[str], known: Sequence[Migration]) -> None:
    ours = {name for migration in known for statement in migration.statements for name in _created(statement)}
    clash = sorted(tables & ours)
    if clash:
        raise StoreError(
            f"Database {address.database!r} at {address} already has {', '.join(clash)}, which spanloop did not make.",
            next_step="Name a database of its own in the ClickHouse URL; spanloop creates it.",
        )


def _remake(connection: Connection, tables: set[str], applied: Sequence[Migration]) -> None:
    """Run again what made tables that are gone: see `spanloop.embedded_clickhouse.empty_definitions`."""
    for migration in applied:
        for number, statement in enumerate(migration.statements, start=1):
            subject = _SUBJECT.match(statement)
            if subject is not None and subject[1] not in tables:
                _run(connection, migration, number, statement)


def _created(statement: str) -> Sequence[str]:
    return re.findall(r"^CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS (\w+)", statement)


def _apply(connection: Connection, migration: Migration) -> None:
    _record(connection, migration, "started")
    for number, statement in enumerate(migration.statements, start=1):
        _run(connection, migration, number, statement)
    _record(connection, migration, "applied")


def _run(connection: Connection, migration: Migration, number: int, statement: str) -> None:
    doing = f"statement {number} of migration {migration.version} ({migration.name})"
    try:
        connection.command(statement, doing=doing)
    except StoreError as error:
        subject = _SUBJECT.match(statement)
        if _EMPTY_DEFINITION not in str(error) or subject is None:
            raise
        raise StoreError(
            f"ClickHouse has lost the definition of {subject[1]!r}, which {doing} changes: {error.what}",
            next_step="Free disk space and start spanloop again: its own server drops a table that has no rows, and "
            "it is made anew. On a server of yours, for a view: DROP VIEW, then start spanloop again.",
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
