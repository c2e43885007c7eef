"""SQLAlchemy engines of the control database: SQLite and PostgreSQL.

Invariant: there is one writer at a time (SQLite's BEGIN IMMEDIATE, an advisory lock in PostgreSQL), and a reader sees
the state of one moment (SQLite's snapshot, REPEATABLE READ in PostgreSQL). A URL is shown without user, password and
options.

All users of one URL in a process share its engine, which compiles each statement once. SQLite connections are not
pooled: opening one takes less than a millisecond. A PostgreSQL connection takes several: the engine's pool is disposed
at the end of the process; a forked child has its own.
"""

import atexit
import os
import time
from functools import cache, lru_cache
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, Pool

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import CONTROL_URL_ENV

LOCK_TIMEOUT_S: Final = 30
"""A writer fails after it has waited for another one for this long."""

_WRITER_OPTION: Final = "spanloop_writer"
_ADVISORY_LOCK_KEY: Final = 0x5350414E4C4F4F50
BEGIN_POSTGRESQL_WRITE: Final = (
    f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'",
    # Releases the lock of a writer whose machine has vanished.
    f"SET LOCAL idle_in_transaction_session_timeout = '{LOCK_TIMEOUT_S}s'",
    f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK_KEY})",
)
_POSTGRESQL_DRIVER: Final = "postgresql+psycopg"
_CONNECTION_OPTIONS: Final = {
    "application_name": "spanloop",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "tcp_user_timeout": "30000",
}
"""Detect a server that has vanished; an option in the URL takes precedence."""
_EXAMPLE: Final = "Set one such as postgresql+psycopg://user:password@host:5432/spanloop, or unset it."

_pools: Final = dict[URL, Engine]()
_inherited: Final = list[Pool]()
"""Connections of the parent, kept from the garbage collector, which would warn of them."""


def open_engine(url: str) -> Engine:
    """Return the engine of a database URL.

    Raises:
        ConfigurationError: The URL is invalid, or its database or driver is not supported or not installed.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    return _pools.get(parsed) or _pools.setdefault(parsed, _postgresql_engine(parsed))


def reader_of(engine: Engine) -> Engine:
    """Return the engine for transactions that read."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writer_of(engine: Engine) -> Engine:
    """Return the engine for transactions that write, one at a time."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_WRITER_OPTION: True})
    # A snapshot of REPEATABLE READ would be older than the lock, and miss the last writer's rows.
    return engine.execution_options(**{_WRITER_OPTION: True}, isolation_level="READ COMMITTED")


def shown_url(url: URL) -> str:
    """Return a URL to show: the file, or server and database."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database or ''}"
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{url.host or url.query.get('host') or 'localhost'}{port}/{url.database or ''}"


def dispose_engines() -> None:
    """Close the pooled connections; the next session opens new ones."""
    for engine in _pools.values():
        engine.dispose()


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Not chained: its text may quote a part of the password.
        raise ConfigurationError(f"{CONTROL_URL_ENV} is not a database URL.", next_step=_EXAMPLE) from None
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise ConfigurationError(
            f"{CONTROL_URL_ENV} names a {parsed.get_backend_name()} database; supported: sqlite and postgresql.",
            next_step=_EXAMPLE,
        )
    if parsed.get_backend_name() == "sqlite":
        return parsed
    if "@" in (parsed.host or ""):
        raise ConfigurationError(
            f"{CONTROL_URL_ENV} has more than one @.", next_step="Write an @ in user or password as %40, a / as %2F."
        )
    if parsed.drivername not in {"postgresql", _POSTGRESQL_DRIVER}:
        raise ConfigurationError(
            f"{CONTROL_URL_ENV} names the driver {parsed.drivername}; supported: {_POSTGRESQL_DRIVER}.",
            next_step=_EXAMPLE,
        )
    return parsed.set(drivername=_POSTGRESQL_DRIVER)


@lru_cache(maxsize=8)
def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url, poolclass=NullPool)
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _postgresql_engine(url: URL) -> Engine:
    options = {name: value for name, value in _CONNECTION_OPTIONS.items() if name not in url.query}
    try:
        engine = create_engine(url.update_query_dict(options), pool_size=2, max_overflow=-1, pool_pre_ping=True)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise ConfigurationError(
            f"The driver for {CONTROL_URL_ENV} is not installed: {error}.",
            next_step="pip install '/path/to/spanloop[postgres]'",
        ) from error
    event.listen(engine, "begin", _begin_postgresql)
    _register_disposal()
    return engine


@cache
def _register_disposal() -> None:
    atexit.register(dispose_engines)
    os.register_at_fork(after_in_child=_forget_connections)


def _forget_connections() -> None:
    for engine in _pools.values():
        _inherited.append(engine.pool)
        engine.dispose(close=False)


def _begin_sqlite(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITER_OPTION, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


def _begin_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(_WRITER_OPTION, False):
        for statement in BEGIN_POSTGRESQL_WRITE:
            connection.exec_driver_sql(statement)


def _set_pragmas(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Configure a SQLite connection: lock timeout, WAL, durable commits, no implicit transactions."""
    # The driver would open transactions itself, and only before a write: too late for BEGIN IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {LOCK_TIMEOUT_S * 1000}")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA journal_mode")
    mode = cursor.fetchone()
    if mode != ("wal",):
        _switch_to_wal(connection)
    cursor.close()


def _switch_to_wal(connection: DBAPIConnection) -> None:
    """Switch to WAL; retry while the database is locked, because busy_timeout does not apply to this lock."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
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
