"""UTC clocks, and aware datetimes stored as whole microseconds, which every database compares alike.

Leases are timed by the database's clock, so that the clocks of the machines that share a database may differ.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger, select
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime; tests pass a fake clock."""

LeaseTime = Callable[[Session], datetime]
"""Returns the time that leases are measured by; tests pass a fake clock."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


class DatabaseTime(FunctionElement[int]):
    """The database's current time in microseconds since the epoch."""

    type = BigInteger()
    inherit_cache = True


@compiles(DatabaseTime, "sqlite")
def _of_sqlite(_element: DatabaseTime, _compiler: SQLCompiler, **_: object) -> str:
    # from days since 4714 BC; unixepoch('subsec') needs SQLite 3.42
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@compiles(DatabaseTime, "postgresql")
def _of_postgresql(_element: DatabaseTime, _compiler: SQLCompiler, **_: object) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


def database_time(session: Session) -> datetime:
    """Return the database's current time in UTC."""
    return EPOCH + session.execute(select(DatabaseTime())).scalar_one() * MICROSECOND


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class UtcMicros(TypeDecorator[datetime]):
    """An aware datetime, stored as microseconds since the epoch. Naive datetimes raise ValueError."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Convert a datetime to microseconds."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: control state stores aware datetimes only")
        return (value - EPOCH) // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert microseconds to a datetime in UTC."""
        return None if value is None else EPOCH + value * MICROSECOND
