"""Databases with spanloop's tables on the session's ClickHouse, one for each test that runs at a time."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final
from uuid import uuid4

from spanloop.store.client import Address, Connection
from spanloop.store.migrate import migrate

MIGRATED: Final = "t_migrated"
TABLES: Final = """
SELECT name, create_table_query AS made FROM system.tables
WHERE database = {name:String} ORDER BY engine LIKE '%View'
"""
ROWS: Final = "SELECT name, total_rows AS rows FROM system.tables WHERE database = {name:String} AND total_rows > 0"


class ReusedDatabases:
    """Databases that earlier tests have done with are emptied and used again, which is faster than making one.

    Args:
        clickhouse: The server.
        server: A connection to it.
        folder: Where the server stores its data.
    """

    def __init__(self, clickhouse: Address, server: Connection, folder: Path) -> None:
        self._clickhouse = clickhouse
        self._server = server
        self._folder = folder
        self._used: list[str] = []
        self._made: dict[str, tuple[frozenset[tuple[str, int, int]], dict[str, str]]] = {}

    def take(self) -> str:
        """Return the name of a database whose tables are those of the migrations, and empty."""
        # Emptied now and not at the end of its test, whose processes may have been writing then.
        if self._used:
            used = self._used.pop(0)
            if self._empty(used):
                return used
            self._server.command(f"DROP DATABASE IF EXISTS `{used}`", doing="cleaning up")
        return self._make()

    def give_back(self, name: str) -> None:
        """Let another test have the database."""
        self._used.append(name)

    @cached_property
    def _schema(self) -> list[str]:
        """The statements that create the tables, faster than the migrations do."""
        migrate(replace(self._clickhouse, database=MIGRATED))
        tables = self._server.query(TABLES, doing="reading a schema", parameters={"name": MIGRATED})
        return [str(statement) for statement in tables["made"]]

    def _make(self) -> str:
        name = f"t_{uuid4().hex[:12]}"
        journal = f"INSERT INTO {MIGRATED}.schema_migrations SELECT * FROM `{MIGRATED}`.schema_migrations"
        for statement in (f"CREATE DATABASE {MIGRATED}", *self._schema, journal):
            renamed = statement.replace(f" {MIGRATED}", f" {name}")
            self._server.command(renamed, doing="making a store", settings={"fsync_metadata": "0"})
        self._made[name] = self._files(name), self._definitions(name)
        return name

    def _empty(self, name: str) -> bool:
        """Remove all rows; False when a test changed the schema and did not change it back."""
        files, definitions = self._made[name]
        if self._files(name) != files:
            if self._definitions(name) != definitions:
                return False
            self._made[name] = self._files(name), definitions
        rows = self._rows(name)
        if rows.pop("schema_migrations", 0) != self._applied:
            return False
        if rows:
            # One statement takes half as long as one for each table.
            self._server.command(
                f"TRUNCATE TABLES FROM `{name}` NOT LIKE 'schema_migrations'", doing="emptying a store"
            )
            # A test may have stopped them, and the next one's mutations would wait for ever.
            self._server.command("SYSTEM START MERGES", doing="starting merges")
        return True

    def _files(self, name: str) -> frozenset[tuple[str, int, int]]:
        """Name, inode and time of the file of each table's definition, which each change of the table replaces."""
        states = {path.name: path.stat() for path in self._paths(name)}
        return frozenset((file, state.st_ino, state.st_mtime_ns) for file, state in states.items())

    def _definitions(self, name: str) -> dict[str, str]:
        """Definition of each table, by the name of its file."""
        return {path.name: path.read_text() for path in self._paths(name)}

    def _paths(self, name: str) -> list[Path]:
        folder = self._folder / "metadata" / name
        return list(folder.iterdir()) if folder.exists() else []

    def _rows(self, name: str) -> dict[str, int]:
        """Return the number of rows of each table that has some."""
        rows = self._server.query(ROWS, doing="counting rows", parameters={"name": name})
        return {str(row["name"]): int(row["rows"]) for row in rows.to_dicts()}

    @cached_property
    def _applied(self) -> int:
        """Number of rows in the journal of the migrations."""
        return self._rows(MIGRATED)["schema_migrations"]
