"""For how long spans and log records are kept.

Invariant: what was acknowledged is kept for that long after it came in, whatever time it says of itself: an old trace
that is imported today, a clock that is wrong, and a time that a 32-bit DateTime cannot hold change nothing. What was
made of spans (episodes, transitions, failures, scores) stays.
"""

import re
from typing import Final

from spanloop.semconv.errors import ConfigurationError

from .store import Store

FOR_EVER: Final = 49_710
"""Days from 1970 to the end of ClickHouse's DateTime."""

_STATEMENTS: Final = {
    "otel_traces": "store_retain_spans",
    "otel_logs": "store_retain_logs",
    "log_summaries": "store_retain_log_summaries",
    "trace_summaries": "store_retain_trace_summaries",
}
_MADE_OF: Final = {"log_summaries": "otel_logs", "trace_summaries": "otel_traces"}
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
    for statement in _STATEMENTS.values():
        store.execute(statement, days=days)


def complete_retention(store: Store) -> None:
    """Keep summaries as long as what they sum up: they may be of a migration after the one that a retention was set in.

    Raises:
        StoreError: ClickHouse refused or is out of reach; call it again.
    """
    days = _stored(store)
    for table, source in _MADE_OF.items():
        if source in days and days.get(table) != days[source]:
            store.execute(_STATEMENTS[table], days=days[source])


def retention(store: Store) -> int:
    """For how many days rows are kept; `FOR_EVER` by default. After half a change, the shortest time that holds."""
    return min(_stored(store).values(), default=FOR_EVER)


def _stored(store: Store) -> dict[str, int]:
    """Table → days, of those that a retention is set for."""
    return {str(table): int(days) for table, days in store.query("store_retention").iter_rows()}
