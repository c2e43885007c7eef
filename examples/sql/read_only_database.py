"""A SQLite database that queries can read and cannot change.

Invariant: the file is opened read-only, only reading statements are authorised, and a query ends after `timeout_s`.
"""

import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

Row: TypeAlias = tuple[object, ...]

_READING: Final = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_INSTRUCTIONS_PER_CHECK: Final = 10_000
_MAX_VALUE_BYTES: Final = 1_000_000


class QueryError(ValueError):
    """A query that did not run; the message says why."""


class ReadOnlyDatabase:
    """One database file.

    Args:
        path: SQLite file.
        timeout_s: Longest run of a query.
        max_rows: Largest result of a query.

    Raises:
        QueryError: The file is missing, or no SQLite database.
    """

    def __init__(self, path: Path, *, timeout_s: float = 2.0, max_rows: int = 1000) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._max_rows = max_rows
        self.columns: dict[str, tuple[str, ...]] = {}
        """Table → columns."""
        try:
            with self._connect() as connection:
                tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")
                for (table,) in tables.fetchall():
                    columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
                    self.columns[table] = tuple(name for (name,) in columns)
        except sqlite3.Error as error:
            raise QueryError(f"{path}: {error}") from error

    def schema(self, tables: str) -> str:
        """Return a line ``table(column, …)`` for each table that ``tables`` names.

        Raises:
            QueryError: It names a table that does not exist, or none.
        """
        by_name = {table.lower(): table for table in self.columns}
        names = [by_name.get(name.strip(' "`').lower()) for name in tables.split(",")]
        known = dict.fromkeys(name for name in names if name is not None)
        if None in names:
            unknown = next(name for name, table in zip(tables.split(","), names, strict=True) if table is None)
            raise QueryError(f"no such table: {unknown.strip()}; the tables are {', '.join(self.columns)}")
        return "\n".join(f"{name}({', '.join(self.columns[name])})" for name in known)

    def query(self, sql: str) -> list[Row]:
        """Run one SELECT.

        Raises:
            QueryError: It is refused, has an error, takes too long, or returns too many rows.
        """
        deadline_s = time.monotonic() + self._timeout_s
        with self._connect() as connection:
            connection.set_authorizer(_authorize)
            connection.set_progress_handler(lambda: time.monotonic() > deadline_s, _INSTRUCTIONS_PER_CHECK)
            try:
                rows: list[Row] = connection.execute(sql).fetchmany(self._max_rows + 1)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:  # ValueError: no UTF-8
                raise QueryError(str(error)) from error
        if len(rows) > self._max_rows:
            raise QueryError(f"more than {self._max_rows} rows")
        return rows

    @contextmanager
    def _connect(self) -> Generator[sqlite3.Connection]:
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
            yield connection


def _authorize(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def only_database(folder: Path) -> Path:
    """Return the SQLite file of a folder.

    Raises:
        FileNotFoundError: There is none, or there are several.
    """
    files = sorted(folder.glob("*.sqlite"))
    if len(files) != 1:
        raise FileNotFoundError(f"{folder} has {len(files)} files *.sqlite, expected one")
    return files[0]
