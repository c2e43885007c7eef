"""Copy a control database into another one: SQLite to PostgreSQL, and back; for backups too.

Invariant: the copy has the state of one moment of the source, and is complete or absent. A database that has other
rows is not changed. A restored database continues with fencing tokens that are newer than all that were given before,
also those that the backup does not know: files of jobs and gateways remember them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Table, func, insert, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import CONTROL_URL_ENV

from ..leases import first_token
from ..paths import ControlPaths
from .control_database import ControlDatabase
from .tables import Base, JobRow, LeaderRow, SchemaRow

Rows = Mapping[Table, Sequence[Mapping[str, Any]]]
_OF_ONE_DATABASE: Final = frozenset({SchemaRow.__table__, LeaderRow.__table__})
"""Tables that are not copied: the schema is migrated, and the leader is a running process."""


def save_control_database(paths: ControlPaths, file: Path) -> None:
    """Copy the control database into a new SQLite file.

    Raises:
        DataDirectoryError: A database is unreachable.
    """
    _copy(ControlDatabase(paths), ControlDatabase(paths, url=f"sqlite:///{file}"))


def renew_tokens(file: Path) -> None:
    """Give the jobs of a restored SQLite database new fencing tokens.

    Raises:
        DataDirectoryError: The file is of a newer spanloop, or its schema is too old.
    """
    with ControlDatabase(ControlPaths(file.parent), url=f"sqlite:///{file}").write() as session:
        token = first_token(utc_now())
        session.execute(update(JobRow).where(JobRow.lease_token < token).values(lease_token=token))


def load_control_database(paths: ControlPaths, file: Path) -> None:
    """Copy a SQLite file into the control database, which has to be empty, or to have the same rows already.

    An older schema in the file is migrated.

    Raises:
        ConfigurationError: The control database has other rows.
        DataDirectoryError: A database is unreachable, the file is of a newer spanloop, or its schema is too old.
    """
    _copy(ControlDatabase(paths, url=f"sqlite:///{file}"), ControlDatabase(paths))


def _copy(source: ControlDatabase, target: ControlDatabase) -> None:
    with source.read() as session:
        rows = _rows(session)
    with target.write() as session:
        stored = _rows(session)
        different = [table for table in rows if _without_tokens(stored[table]) != _without_tokens(rows[table])]
        if not different:
            return
        if any(stored.values()):
            table = different[0]
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


def _without_tokens(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return rows without their fencing tokens, which are new each time."""
    return [{name: value for name, value in row.items() if name != JobRow.lease_token.key} for row in rows]


def _advance_ids(session: Session, table: Table) -> None:
    """Let PostgreSQL continue after the copied ids; SQLite does so by itself."""
    column = table.autoincrement_column
    if column is not None and session.get_bind().dialect.name == "postgresql":
        sequence = func.pg_get_serial_sequence(table.name, column.name)
        session.execute(select(func.setval(sequence, select(func.max(column)).scalar_subquery())))
