"""Classify how each task's outcome changed between two policy versions: exactly one kind of change a task."""

from enum import StrEnum
from typing import Any, Final

import polars as pl

from spanloop.evaluation.results import EpisodePair


class Change(StrEnum):
    """How a task's outcome changed; the value is its label on pages."""

    BETTER = "Better"
    WORSE = "Worse"
    SOLVED = "Solved by both"
    UNSOLVED = "Solved by neither"
    UNKNOWN = "Outcome unknown"


CHANGES: Final = tuple(Change)


def classify_changes(tasks: pl.DataFrame) -> pl.DataFrame:
    """Return rows of ``dashboard_task_pairs`` with ``before_share`` and ``after_share`` of success, and ``change``.

    Shares are compared over all attempts at a task; equal shares above zero count as solved by both.
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


def choose_pair(row: dict[str, Any]) -> EpisodePair | None:
    """Return the two episodes that show a task's change; None when an outcome is unknown."""
    failed_then_solved = (row["before_failure_id"], row["after_success_id"])
    solved_then_failed = (row["before_success_id"], row["after_failure_id"])
    solved = (row["before_success_id"], row["after_success_id"])
    failed = (row["before_failure_id"], row["after_failure_id"])
    match Change(row["change"]):
        case Change.BETTER:
            episode_ids = failed_then_solved
        case Change.WORSE:
            episode_ids = solved_then_failed
        case Change.SOLVED:
            episode_ids = solved
        case Change.UNSOLVED:
            episode_ids = failed
        case Change.UNKNOWN:
            return None
    return EpisodePair(row["task_id"], *episode_ids)


def _share(side: str) -> pl.Expr:
    rated = pl.col(f"{side}_successes") + pl.col(f"{side}_failures")
    return pl.when(rated > 0).then(pl.col(f"{side}_successes") / rated).alias(f"{side}_share")
