"""The control database: SQLite in the data directory, or the database that ``SPANLOOP_CONTROL_URL`` names.

Invariant: a newer schema is rejected before anything is read. A migration is one transaction: an interrupted one leaves
the former schema.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, inspect, select

from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.former_schemas import OPEN_ONCE
from spanloop.training.jobs.database.tables import (
    AlertDeliveryRow,
    AlertRow,
    AlertRuleRow,
    Base,
    LoopRoundRow,
    OfferRow,
    PooledRunRow,
    RefusalRow,
    SchemaRow,
)
from spanloop.training.jobs.paths import ControlPaths

SCHEMA_NAME: Final = "control"

INITIAL_VERSION: Final = 5
"""The oldest schema version that this code opens."""


def _add_loop_rounds(connection: Connection) -> None:
    LoopRoundRow.metadata.tables[LoopRoundRow.__tablename__].create(connection)


def _add_alerts(connection: Connection) -> None:
    for row in (AlertRuleRow, AlertRow, AlertDeliveryRow):
        row.metadata.tables[row.__tablename__].create(connection)


def _add_pooled_runs(connection: Connection) -> None:
    for row in (PooledRunRow, OfferRow, RefusalRow):
        row.metadata.tables[row.__tablename__].create(connection)


MIGRATIONS: Final[tuple[Callable[[Connection], None], ...]] = (_add_loop_rounds, _add_alerts, _add_pooled_runs)
"""Each entry migrates to the next schema version, the first one from `INITIAL_VERSION`. A new database needs none of
them: `tables` states the newest schema."""

SCHEMA_VERSION: Final = INITIAL_VERSION + len(MIGRATIONS)


class ControlDatabase(ControlSessions):
    """Opens sessions on the control database.

    Args:
        paths: Paths of the data directory, which must exist for SQLite.
        url: SQLAlchemy URL; empty means ``$SPANLOOP_CONTROL_URL``, else SQLite in the data directory.
        migrate: Make or migrate the tables; without, only `url` and `stored_version` are of use.

    Raises:
        ConfigurationError: The URL cannot be used.
        DataDirectoryError: The database is unreachable, a newer spanloop wrote it, or its schema is too old.
    """

    def __init__(self, paths: ControlPaths, *, url: str = "", migrate: bool = True) -> None:
        super().__init__(paths.database, url=url)
        if migrate:
            self._migrate()

    def stored_version(self) -> int:
        """Return the schema version of the tables; 0 when there are none."""
        with self._translate_errors(), self._reader.connect() as connection:
            return _version(connection)

    def _migrate(self) -> None:
        if self.stored_version() == SCHEMA_VERSION:
            return
        with self.write() as session:
            # Checked again under the write lock: another process may have migrated meanwhile.
            connection = session.connection()
            version = _version(connection)
            check_schema_version(version, self.url)
            if not version:
                Base.metadata.create_all(connection)
            else:
                for migrate in MIGRATIONS[version - INITIAL_VERSION :]:
                    migrate(connection)
            session.merge(SchemaRow(name=SCHEMA_NAME, version=SCHEMA_VERSION))


def check_schema_version(version: int, url: str) -> None:
    """Check that this code can open a database with a schema version; 0, one without tables, is fine.

    Raises:
        DataDirectoryError: The version is newer than this code, or older than the initial schema.
    """
    if version > SCHEMA_VERSION:
        raise DataDirectoryError(
            f"The control database {url} has schema version {version}; "
            f"this spanloop supports versions up to {SCHEMA_VERSION}.",
            next_step="Use the newer spanloop that wrote it, or another data directory (--data-dir).",
        )
    if 0 < version < INITIAL_VERSION:
        raise DataDirectoryError(
            f"The control database {url} has schema version {version}, of an older spanloop; "
            f"this spanloop supports versions from {INITIAL_VERSION} on.",
            next_step=OPEN_ONCE,
        )


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(SchemaRow.__tablename__):
        return 0
    return connection.scalar(select(SchemaRow.version).where(SchemaRow.name == SCHEMA_NAME)) or 0
