"""Versioned migrations of the ClickHouse schema: the files ``migrations/NNNN_name.sql``, in order.

Invariant: a database at version n has run exactly the files 1 to n of this code, checked by checksum. The table
``schema_migrations`` is a journal: ``started`` before a file's first statement, ``applied`` after its last. Every
statement is idempotent, so a file that was started and not applied is run again, by whoever comes first or by two at once.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version as package_version
from importlib.resources import files
from typing import Final, NamedTuple

from clickhouse_connect.driver.client import Client

from spanloop.semconv.errors import StoreError

from .client import Address, open_client, store_errors

_FILE_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")
_END_OF_STATEMENT: Final = re.compile(r";[ \t]*(?:\n|$)")
_COMMENT_LINE: Final = re.compile(r"^\s*--.*$", re.MULTILINE)
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
    client = open_client(address, database="default")
    try:
        with store_errors(f"migrating database {address.database!r}"):
            client.command(f"CREATE DATABASE IF NOT EXISTS `{address.database}`")
            client.database = address.database
            _bring_up(client, address, known)
    finally:
        client.close()


def _bring_up(client: Client, address: Address, known: Sequence[Migration]) -> None:
    tables = {
        str(row[0])
        for row in client.query("SELECT name FROM system.tables WHERE database = currentDatabase()").result_rows
    }
    if "schema_migrations" not in tables:
        _refuse_foreign(address, tables, known)
        client.command(_JOURNAL)
    applied = _read_journal(client)
    _check(address, applied, known)
    for migration in known:
        if migration.version not in applied:
            _apply(client, migration)


def _read_journal(client: Client) -> Mapping[int, _Applied]:
    rows = client.query(
        "SELECT version, checksum, name, spanloop_version FROM schema_migrations WHERE state = 'applied' ORDER BY recorded_at"
    ).result_rows
    return {int(row[0]): _Applied(str(row[1]), str(row[2]), str(row[3])) for row in rows}


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
                f"got checksum {found.checksum}, expected {expected}. It was made by spanloop {found.spanloop_version}.",
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


def _created(statement: str) -> Sequence[str]:
    return re.findall(r"^CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS (\w+)", statement)


def _apply(client: Client, migration: Migration) -> None:
    _record(client, migration, "started")
    for statement in migration.statements:
        client.command(statement)
    _record(client, migration, "applied")


def _record(client: Client, migration: Migration, state: str) -> None:
    client.insert(
        "schema_migrations",
        [[migration.version, migration.name, migration.checksum, state, package_version("spanloop")]],
        column_names=["version", "name", "checksum", "state", "spanloop_version"],
        settings={"async_insert": 0},
    )
