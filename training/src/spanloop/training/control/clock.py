"""UTC clock, and aware datetimes stored as whole microseconds, which every database compares alike."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

Clock = Callable[[], datetime]
"""Returns the current time as an aware datetime; tests pass a fake clock."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


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
