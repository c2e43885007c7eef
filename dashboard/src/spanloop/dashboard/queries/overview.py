"""Counts of the whole store since a moment in seconds since the epoch; 0 includes everything."""

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from spanloop.store import Store


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts of what the store holds since a moment."""

    episodes: int
    successes: int
    failures: int
    steps: int
    tool_calls: int
    tool_errors: int
    input_tokens: int
    output_tokens: int
    mean_reward: float | None
    spans: int
    last_ingested_at: datetime | None
    """Of all spans, also earlier ones; None when no span is stored."""
    transitions: int
    trainable_transitions: int


def fetch_totals(store: Store, since_s: int) -> Totals:
    """Return all counts since a moment."""
    row = store.query("dashboard_totals", since_s=since_s).row(0, named=True)
    if not row["spans"] and row["last_ingested_at"] is not None and row["last_ingested_at"].timestamp() == 0:
        row["last_ingested_at"] = None
    mean_reward = row.pop("mean_reward")
    return Totals(**row, mean_reward=_finite(mean_reward))


def fetch_outcomes_over_time(store: Store, since_s: int, bucket_s: int) -> pl.DataFrame:
    """Return ``bucket``, ``episodes``, ``successes``, ``failures``, ``mean_reward`` and tokens, oldest first."""
    return store.query("dashboard_outcomes_over_time", since_s=since_s, bucket_s=bucket_s)


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value else value  # noqa: PLR0124 (avg() of no rows is NaN)
