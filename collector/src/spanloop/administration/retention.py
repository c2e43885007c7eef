"""For how long spans and log records are kept.

Invariant: what was acknowledged is kept for that long after it came in, whatever time it says of itself: an old trace
that is imported today, a clock that is wrong, and a time that a 32-bit DateTime cannot hold change nothing. What was
made of spans (episodes, transitions, failures, scores) stays.
"""

import re
from typing import Final

from spanloop.semconv.errors import ConfigurationError
from spanloop.store.store import Store
from spanloop.store.summary_retention import RETENTION_STATEMENTS, retention_days

FOR_EVER: Final = 49_710
"""Days from 1970 to the end of ClickHouse's DateTime."""

_PERIOD: Final = re.compile(r"(\d{1,6})\s*d?")


def read_period(text: str) -> int:
    """The days that ``90d``, ``90`` or ``keep`` names.

    Raises:
        ConfigurationError: Something else, or less than a day.
    """
    if text == "keep":
        return FOR_EVER
    match = _PERIOD.fullmatch(text.strip())
    days = int(match[1]) if match else 0
    if not 1 <= days < FOR_EVER:
        raise ConfigurationError(
            f"{text!r} is no retention: expected days from 1d to {FOR_EVER - 1}d, or keep.",
            next_step="For example: spanloop store retention 90d",
        )
    return days


def set_retention(store: Store, days: int) -> None:
    """Keep spans, their summaries and log records for so many days after they came in.

    ClickHouse removes what is older by itself, some hours later; a day's spans go when all of them are.

    Args:
        store: Where.
        days: At least one; `FOR_EVER` keeps everything.

    Raises:
        StoreError: ClickHouse refused or is out of reach; call it again.
    """
    if days == FOR_EVER and retention(store) == FOR_EVER:
        return
    for statement in RETENTION_STATEMENTS.values():
        store.execute(statement, days=days)


def retention(store: Store) -> int:
    """For how many days rows are kept; `FOR_EVER` by default. After half a change, the shortest time that holds."""
    return min(retention_days(store).values(), default=FOR_EVER)
