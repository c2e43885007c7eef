"""The control database: SQLite in the data directory, or the database that ``SPANLOOP_CONTROL_URL`` names.

Invariant: there is one writer at a time (SQLite's BEGIN IMMEDIATE, an advisory lock in PostgreSQL), and a newer schema
is rejected before anything is read. Reads never wait for a writer. SQLite connections are not pooled: opening one
takes less than a millisecond, and connections are then never shared between threads or forks.
"""

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from spanloop.semconv.errors import ConfigurationError, DataDirectoryError
from spanloop.training.control.migrations import add_ticks, create_tables, deploy_by_rule, name_dr_grpo
from spanloop.training.control.paths import ControlPaths
from spanloop.training.control.tables import SchemaRow

CONTROL_URL_ENV: Final = "SPANLOOP_CONTROL_URL"
"""SQLAlchemy URL of the control database; unset means ``control.db`` in the data directory."""

BUSY_TIMEOUT_S: Final = 30.0
SCHEMA_NAME: Final = "control"
WRITER_OPTION: Final = "spanloop_writer"
ADVISORY_LOCK_KEY: Final = 0x5350414E4C4F4F50


MIGRATIONS: Final[tuple[Callable[[Connection], None], ...]] = (create_tables, name_dr_grpo, deploy_by_rule, add_ticks)
"""The n-th entry migrates from schema version n to n + 1."""

SCHEMA_VERSION: Final = len(MIGRATIONS)


class ControlDatabase:
    """Opens sessions on the control database.

    Args:
        paths: Paths of the data directory, which must exist for SQLite.
        url: SQLAlchemy URL; empty means ``$SPANLOOP_CONTROL_URL``, else SQLite in the data directory.

    Raises:
        ConfigurationError: The URL cannot be used.
        DataDirectoryError: The database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, paths: ControlPaths, *, url: str = "") -> None:
        database_url = url or os.environ.get(CONTROL_URL_ENV, "")
        self._engine = _open_engine(database_url) if database_url else _open_sqlite(paths)
        self._writer = self._engine.execution_options(**{WRITER_OPTION: True})
        self.url: str = self._engine.url.render_as_string(hide_password=True)
        self._migrate()

    @contextmanager
    def read(self) -> Generator[Session]:
        """Open a read session that sees one consistent state."""
        with self._translate_errors(), Session(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Generator[Session]:
        """Open the only write session, which commits at its end; an exception rolls it back."""
        with self._translate_errors(), Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except DBAPIError as error:
            raise DataDirectoryError(
                f"The control database {self.url} rejected a statement: {error.orig}.",
                next_step="Check that the disk has room and that the file is writable by you.",
                is_transient=isinstance(error, OperationalError),
            ) from error

    def _migrate(self) -> None:
        with self._translate_errors():
            if self._stored_version() == SCHEMA_VERSION:
                return
        with self.write() as session:
            # Checked again under the write lock: another process may have migrated meanwhile.
            version = self._stored_version(session.connection())
            if version > SCHEMA_VERSION:
                raise DataDirectoryError(
                    f"The control database {self.url} has schema version {version}; "
                    f"this spanloop supports versions up to {SCHEMA_VERSION}.",
                    next_step="Use the newer spanloop that wrote it, or another data directory (--data-dir).",
                )
            for migrate in MIGRATIONS[version:]:
                migrate(session.connection())
            session.merge(SchemaRow(name=SCHEMA_NAME, version=SCHEMA_VERSION))

    def _stored_version(self, connection: Connection | None = None) -> int:
        if connection is None:
            with self._engine.connect() as new_connection:
                return self._stored_version(new_connection)
        if not inspect(connection).has_table(SchemaRow.__tablename__):
            return 0
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            row = session.get(SchemaRow, SCHEMA_NAME)
            return row.version if row else 0


def _open_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
            raise ConfigurationError(
                f"{CONTROL_URL_ENV} names a {parsed.get_backend_name()} database; supported: sqlite and postgresql."
            )
        is_sqlite = parsed.get_backend_name() == "sqlite"
        engine = create_engine(parsed, poolclass=NullPool) if is_sqlite else create_engine(parsed, pool_pre_ping=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise ConfigurationError(
            f"The driver for {CONTROL_URL_ENV} is not installed: {error}.",
            next_step="pip install 'psycopg[binary]' and use a URL that starts with postgresql+psycopg://",
        ) from error
    except ArgumentError as error:
        raise ConfigurationError(
            f"{CONTROL_URL_ENV} is not a database URL: {error}.",
            next_step="Set one such as postgresql+psycopg://user:password@host:5432/spanloop, or unset it.",
        ) from error
    _listen(engine, is_sqlite=is_sqlite)
    return engine


def _open_sqlite(paths: ControlPaths) -> Engine:
    if not paths.root.is_dir():
        raise DataDirectoryError(
            f"The data directory {paths.root} does not exist.", next_step=f"spanloop up --data-dir {paths.root}"
        )
    return _open_engine(f"sqlite:///{paths.database}")


def _listen(engine: Engine, *, is_sqlite: bool) -> None:
    if is_sqlite:
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgresql)


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(WRITER_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(WRITER_OPTION, False):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK_KEY})")


def _set_pragmas(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Configure a SQLite connection: lock timeout, WAL, durable commits, no implicit transactions."""
    # The driver would open transactions itself, and only before a write: too late for BEGIN IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA journal_mode")
    mode = cursor.fetchone()
    if mode != ("wal",):
        _switch_to_wal(connection)
    cursor.close()


def _switch_to_wal(connection: DBAPIConnection) -> None:
    """Switch to WAL; retry while the database is locked, because busy_timeout does not apply to this lock."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    cursor = connection.cursor()
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            cursor.close()
            return
