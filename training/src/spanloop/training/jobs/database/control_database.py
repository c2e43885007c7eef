"""The control database: SQLite in the data directory, or the database that ``SPANLOOP_CONTROL_URL`` names.

Invariant: there is one writer at a time, a reader sees the state of one moment and never waits for a writer (both in
`engines`), and a newer schema is rejected before anything is read. A migration is one transaction: an interrupted one
leaves the former schema.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from spanloop.foundation.errors import DataDirectoryError
from spanloop.semconv.environment import CONTROL_URL_ENV, read_setting
from spanloop.training.jobs.database.database_errors import to_spanloop_error
from spanloop.training.jobs.database.engines import open_engine, reader_of, shown_url, writer_of
from spanloop.training.jobs.database.migrations import (
    add_leaders,
    add_ticks,
    create_tables,
    deploy_by_rule,
    name_dr_grpo,
)
from spanloop.training.jobs.database.tables import SchemaRow
from spanloop.training.jobs.paths import ControlPaths

SCHEMA_NAME: Final = "control"

MIGRATIONS: Final[tuple[Callable[[Connection], None], ...]] = (
    create_tables,
    name_dr_grpo,
    deploy_by_rule,
    add_ticks,
    add_leaders,
)
"""The n-th entry migrates from schema version n to n + 1."""

SCHEMA_VERSION: Final = len(MIGRATIONS)


class ControlDatabase:
    """Opens sessions on the control database.

    Args:
        paths: Paths of the data directory, which must exist for SQLite.
        url: SQLAlchemy URL; empty means ``$SPANLOOP_CONTROL_URL``, else SQLite in the data directory.
        migrate: Make or migrate the tables; without, only `url` and `stored_version` are of use.

    Raises:
        ConfigurationError: The URL cannot be used.
        DataDirectoryError: The database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, paths: ControlPaths, *, url: str = "", migrate: bool = True) -> None:
        database_url = url or read_setting(CONTROL_URL_ENV)
        engine = open_engine(database_url or _sqlite_url(paths))
        self._reader, self._writer = reader_of(engine), writer_of(engine)
        self.url: str = shown_url(engine.url)
        """Without user, password and options."""
        if migrate:
            self._migrate()

    @contextmanager
    def read(self) -> Generator[Session]:
        """Open a read session that sees one consistent state."""
        with self._translate_errors(), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """Open the only write session, which commits at its end; an exception rolls it back."""
        with self._translate_errors(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            session.connection()  # takes the lock now, and not with the first statement
            yield session

    def stored_version(self) -> int:
        """Return the schema version of the tables; 0 when there are none."""
        with self._translate_errors(), self._reader.connect() as connection:
            return _version(connection)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise to_spanloop_error(error, self._reader.url) from error

    def _migrate(self) -> None:
        if self.stored_version() == SCHEMA_VERSION:
            return
        with self.write() as session:
            # Checked again under the write lock: another process may have migrated meanwhile.
            version = _version(session.connection())
            if version > SCHEMA_VERSION:
                raise DataDirectoryError(
                    f"The control database {self.url} has schema version {version}; "
                    f"this spanloop supports versions up to {SCHEMA_VERSION}.",
                    next_step="Use the newer spanloop that wrote it, or another data directory (--data-dir).",
                )
            for migrate in MIGRATIONS[version:]:
                migrate(session.connection())
            session.merge(SchemaRow(name=SCHEMA_NAME, version=SCHEMA_VERSION))


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table(SchemaRow.__tablename__):
        return 0
    with Session(connection, join_transaction_mode="create_savepoint") as session:
        row = session.get(SchemaRow, SCHEMA_NAME)
        return row.version if row else 0


def _sqlite_url(paths: ControlPaths) -> str:
    if not paths.root.is_dir():
        raise DataDirectoryError(
            f"The data directory {paths.root} does not exist.", next_step=f"spanloop up --data-dir {paths.root}"
        )
    return f"sqlite:///{paths.database}"
