"""Retention of spans, their summaries and log records.

Invariant: the retention of a row counts from its arrival, not from its own timestamp. So an old trace that is imported
today, a wrong clock, or a time beyond a 32-bit DateTime makes no difference. Derived rows (episodes, transitions,
failures) and scores are kept.
"""

import re
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.store.discovery import RETENTION_STATEMENTS, retention_days
from spanloop.store.store import Store

FOR_EVER: Final = 49_710
"""Days from 1970 to the end of ClickHouse's DateTime: rows never expire."""

_PERIOD: Final = re.compile(r"(\d{1,6})\s*d?")


def read_period(text: str) -> int:
    """Parse ``90d``, ``90`` or ``keep`` to days.

    Raises:
        ConfigurationError: The text has another form, or is less than a day.
    """
    if text == "keep":
        return FOR_EVER
    match = _PERIOD.fullmatch(text.strip())
    days = int(match[1]) if match else 0
    if not 1 <= days < FOR_EVER:
        raise ConfigurationError(
            f"{text!r} is not a retention: expected days from 1d to {FOR_EVER - 1}d, or keep.",
            next_step="For example: spanloop store retention 90d",
        )
    return days


def set_retention(store: Store, days: int) -> None:
    """Set for how many days after arrival spans, their summaries and log records are kept.

    ClickHouse removes expired rows automatically, some hours later; spans are removed by whole days. ``days`` is at
    least one; `FOR_EVER` disables expiry.

    Raises:
        StoreError: ClickHouse rejected a statement or is unreachable; call it again.
    """
    if days == FOR_EVER and retention(store) == FOR_EVER:
        return
    for statement in RETENTION_STATEMENTS.values():
        store.execute(statement, days=days)


def retention(store: Store) -> int:
    """Return the retention in days, `FOR_EVER` by default; after an interrupted change, the shortest of all tables."""
    return min(retention_days(store).values(), default=FOR_EVER)
