"""What changed at each task from one policy version to another.

Every task that both attempted is of exactly one kind.
"""

from enum import StrEnum
from typing import Any, Final

import polars as pl

from spanloop.training.evaluation import EpisodePair


class Change(StrEnum):
    """What became of a task; the value is what a page calls it."""

    BETTER = "Better"
    WORSE = "Worse"
    SOLVED = "Solved by both"
    UNSOLVED = "Solved by neither"
    UNKNOWN = "Outcome unknown"


CHANGES: Final = tuple(Change)


def with_changes(tasks: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``dashboard_task_pairs`` with ``before_share`` and ``after_share`` of success, and ``change``.

    With several attempts at a task the shares are compared; equal shares above zero count as solved by both.
    """
    shares = tasks.with_columns(_share("before"), _share("after"))
    before, after = pl.col("before_share"), pl.col("after_share")
    return shares.with_columns(
        pl.when(before.is_null() | after.is_null())
        .then(pl.lit(Change.UNKNOWN.value))
        .when(after > before)
        .then(pl.lit(Change.BETTER.value))
        .when(after < before)
        .then(pl.lit(Change.WORSE.value))
        .when(after > 0)
        .then(pl.lit(Change.SOLVED.value))
        .otherwise(pl.lit(Change.UNSOLVED.value))
        .alias("change")
    )


def pair_of(row: dict[str, Any]) -> EpisodePair | None:
    """The two episodes that show the change of one task best; None when no outcome of it is known."""
    failed_then_solved = (row["before_failure_id"], row["after_success_id"])
    solved_then_failed = (row["before_success_id"], row["after_failure_id"])
    solved = (row["before_success_id"], row["after_success_id"])
    failed = (row["before_failure_id"], row["after_failure_id"])
    match Change(row["change"]):
        case Change.BETTER:
            wanted = failed_then_solved
        case Change.WORSE:
            wanted = solved_then_failed
        case Change.SOLVED:
            wanted = solved
        case Change.UNSOLVED:
            wanted = failed
        case Change.UNKNOWN:
            return None
    return EpisodePair(row["task_id"], *wanted)


def _share(side: str) -> pl.Expr:
    rated = pl.col(f"{side}_successes") + pl.col(f"{side}_failures")
    return pl.when(rated > 0).then(pl.col(f"{side}_successes") / rated).alias(f"{side}_share")
