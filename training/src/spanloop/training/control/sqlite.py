"""What every SQLite connection of ours is told before its first statement."""

import time
from typing import Final

from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

BUSY_TIMEOUT_S: Final = 30.0


def set_pragmas(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Wait for locks, WAL, durable commits, and no transactions behind our back."""
    # The driver would open transactions of its own, and only before a write: too late for IMMEDIATE.
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
    """SQLite does not wait (busy_timeout) for the lock that this switch needs, so that we do."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT_S
    cursor = connection.cursor()
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except Exception as error:
            if "locked" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(0.01)
        else:
            cursor.close()
            return
