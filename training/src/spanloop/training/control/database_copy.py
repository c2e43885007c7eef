"""Copy a control database into another one: SQLite to PostgreSQL, and back.

Invariant: the copy has the state of one moment of the source, and is complete or absent. A database that has other
rows is not changed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Table, func, insert, select
from sqlalchemy.orm import Session

from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.semconv.errors import ConfigurationError

from .database import ControlDatabase
from .paths import ControlPaths
from .tables import Base, LeaderRow, SchemaRow

Rows = Mapping[Table, Sequence[Mapping[str, Any]]]
_OF_ONE_DATABASE: Final = frozenset({SchemaRow.__table__, LeaderRow.__table__})
"""Tables that are not copied: the schema is migrated, and the leader is a running process."""


def save_control_database(paths: ControlPaths, file: Path) -> None:
    """Copy the control database into a new SQLite file.

    Raises:
        DataDirectoryError: A database is unreachable.
    """
    _copy(ControlDatabase(paths), ControlDatabase(paths, url=f"sqlite:///{file}"))


def load_control_database(paths: ControlPaths, file: Path) -> None:
    """Copy a SQLite file into the control database, which has to be empty, or to have the same rows already.

    An older schema in the file is migrated.

    Raises:
        ConfigurationError: The control database has other rows.
        DataDirectoryError: A database is unreachable, or the file is of a newer spanloop.
    """
    _copy(ControlDatabase(paths, url=f"sqlite:///{file}"), ControlDatabase(paths))


def _copy(source: ControlDatabase, target: ControlDatabase) -> None:
    with source.read() as session:
        rows = _rows(session)
    with target.write() as session:
        stored = _rows(session)
        if stored == rows:
            return
        if any(stored.values()):
            table = next(table for table in stored if stored[table] != rows[table])
            raise ConfigurationError(
                f"The control database {target.url} has other rows, so nothing was copied into it: "
                f"{len(stored[table]):,} in {table.name}, expected 0.",
                next_step=f"Let {CONTROL_URL_ENV} name an empty database: CREATE DATABASE … in psql.",
            )
        for table, table_rows in rows.items():
            if table_rows:
                session.execute(insert(table), table_rows)
                _advance_ids(session, table)


def _rows(session: Session) -> Rows:
    tables = [table for table in Base.metadata.sorted_tables if table not in _OF_ONE_DATABASE]
    statements = {table: select(table).order_by(*table.primary_key) for table in tables}
    return {table: [dict(row) for row in session.execute(statements[table]).mappings()] for table in tables}


def _advance_ids(session: Session, table: Table) -> None:
    """Let PostgreSQL continue after the copied ids; SQLite does so by itself."""
    column = table.autoincrement_column
    if column is not None and session.get_bind().dialect.name == "postgresql":
        sequence = func.pg_get_serial_sequence(table.name, column.name)
        session.execute(select(func.setval(sequence, select(func.max(column)).scalar_subquery())))
