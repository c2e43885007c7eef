"""Databases with spanloop's tables on the session's ClickHouse, one for each test that runs at a time."""

from dataclasses import replace
from functools import cached_property
from typing import Final
from uuid import uuid4

from spanloop.store.client import Address, Connection
from spanloop.store.migrate import migrate

MIGRATED: Final = "t_migrated"
TABLES: Final = """
SELECT name, create_table_query AS made, total_rows AS rows FROM system.tables
WHERE database = {name:String} ORDER BY engine LIKE '%View'
"""


class ReusedDatabases:
    """Databases that earlier tests have done with are emptied and used again, which is faster than making one.

    Args:
        clickhouse: The server.
        server: A connection to it.
    """

    def __init__(self, clickhouse: Address, server: Connection) -> None:
        self._clickhouse = clickhouse
        self._server = server
        self._used: list[str] = []

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
    def _schema(self) -> dict[str, str]:
        """Table → the statement that creates it, faster than the migrations do."""
        migrate(replace(self._clickhouse, database=MIGRATED))
        return self._tables(MIGRATED)[0]

    def _tables(self, database: str) -> tuple[dict[str, str], dict[str, int]]:
        """Return the statement and the number of rows of each table of a database."""
        rows = self._server.query(TABLES, doing="reading a schema", parameters={"name": database}).to_dicts()
        made = {str(row["name"]): str(row["made"]).replace(f" {database}", f" {MIGRATED}") for row in rows}
        return made, {str(row["name"]): int(row["rows"] or 0) for row in rows}

    def _make(self) -> str:
        name = f"t_{uuid4().hex[:12]}"
        journal = f"INSERT INTO {MIGRATED}.schema_migrations SELECT * FROM `{MIGRATED}`.schema_migrations"
        for statement in (f"CREATE DATABASE {MIGRATED}", *self._schema.values(), journal):
            renamed = statement.replace(f" {MIGRATED}", f" {name}")
            self._server.command(renamed, doing="making a store", settings={"fsync_metadata": "0"})
        return name

    def _empty(self, name: str) -> bool:
        """Remove all rows; False when a test changed the schema."""
        schema, rows = self._tables(name)
        if schema != self._schema or rows["schema_migrations"] != self._applied:
            return False
        for table, count in rows.items():
            if count and table != "schema_migrations":
                self._server.command(f"TRUNCATE TABLE `{name}`.`{table}`", doing="emptying a store")
        return True

    @cached_property
    def _applied(self) -> int:
        """Number of rows in the journal of the migrations."""
        return self._tables(MIGRATED)[1]["schema_migrations"]
