"""Time: always aware, always UTC, stored as whole microseconds so that every database compares it alike."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import BigInteger
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

Clock = Callable[[], datetime]
"""Gives the present instant, aware; tests put a clock of their own in its place."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def utc_now() -> datetime:
    """The present instant in UTC."""
    return datetime.now(UTC)


class UtcMicros(TypeDecorator[datetime]):
    """An aware datetime, stored as microseconds since the epoch. Naive datetimes are refused."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Datetime to microseconds."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"naive datetime {value!r}: control state keeps aware datetimes only")
        return (value - EPOCH) // MICROSECOND

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Microseconds to datetime in UTC."""
        return None if value is None else EPOCH + value * MICROSECOND
