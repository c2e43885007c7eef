"""The age of stored rows: how far the policy that sampled a row is behind the base of a job, in versions and days.

Invariant: pure functions over frames. A version that the base does not descend from has no age in versions.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import polars as pl

AGE_COLUMNS: Final = ("age_versions", "age_days")
_SECONDS_OF_DAY: Final = 86_400


def with_ages(rows: pl.DataFrame, versions: Sequence[str], now: datetime) -> pl.DataFrame:
    """Add the columns ``age_versions`` (UInt32) and ``age_days`` (Float64) to ``rows``.

    Args:
        rows: With the columns ``policy_version`` and ``started_at``.
        versions: The base and its ancestors, newest first; rows of others have null as ``age_versions``.
        now: Aware; the time that days are counted back from.
    """
    ages = pl.DataFrame(
        {"policy_version": list(versions), "age_versions": range(len(versions))},
        schema={"policy_version": pl.String, "age_versions": pl.UInt32},
    )
    seconds = (pl.lit(now).dt.epoch("s") - pl.col("started_at").dt.epoch("s")).cast(pl.Float64)
    aged = rows.join(ages, on="policy_version", how="left", maintain_order="left")
    return aged.with_columns(age_days=(seconds / _SECONDS_OF_DAY).clip(lower_bound=0))


def too_old(max_versions: int | None, max_days: float | None) -> list[pl.Expr]:
    """Return the conditions, over the columns of :func:`with_ages`, under which a row is too old; None is no limit.

    An unknown age in versions is not too old.
    """
    limits = (("age_versions", max_versions), ("age_days", max_days))
    return [(pl.col(name) > limit).fill_null(value=False) for name, limit in limits if limit is not None]
