"""Curriculum: groups by the share of their attempts that succeed.

Invariant: a pass rate is of all episodes of a group that the job's filters select, also of those that it does not train
on; episodes whose outcome is not known, and failures that the policy did not cause, do not count.
"""

import polars as pl

from spanloop.converters.credit import NOT_THE_POLICYS

from .settings import DataStrategies


def pass_rates(checked: pl.DataFrame) -> pl.DataFrame:
    """Return the columns ``group`` and ``pass_rate`` (Float64, 0 to 1); groups without a known outcome are absent.

    Args:
        checked: Rows of the query ``training_trajectories``.
    """
    counts = pl.col("outcome").is_in(["success", "failure"]) & ~pl.col("decided_by").is_in(sorted(NOT_THE_POLICYS))
    episodes = checked.filter(counts).unique("episode_id")
    return episodes.group_by(group=group_of()).agg(pass_rate=(pl.col("outcome") == "success").mean())


def group_of() -> pl.Expr:
    """Return the group of a row; an episode without a group is one of its own."""
    return pl.when(pl.col("group_id") == "").then(pl.col("episode_id")).otherwise(pl.col("group_id"))


def is_within(strategies: DataStrategies) -> pl.Expr:
    """Return whether a unit's ``pass_rate`` lies within the limits; an unknown one lies within no limit."""
    lowest, highest = strategies.min_pass_rate, strategies.max_pass_rate
    if lowest is None and highest is None:
        return pl.lit(value=True)
    within = pl.col("pass_rate").is_between(0.0 if lowest is None else lowest, 1.0 if highest is None else highest)
    return within.fill_null(value=False)


def explain(strategies: DataStrategies) -> str:
    """Return the limits in words."""
    lowest, highest = strategies.min_pass_rate, strategies.max_pass_rate
    limits = [
        f"at least {lowest:g}" if lowest is not None else "",
        f"at most {highest:g}" if highest is not None else "",
    ]
    return f"pass rate of {' and '.join(limit for limit in limits if limit)}"
