"""Two evaluations side by side: the paired difference, and what changed for tools, errors and single tasks."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import polars as pl

from spanloop.store import Store

from .bootstrap import Interval, bootstrap_mean
from .stored_evaluations import (
    ErrorUse,
    Evaluation,
    EvaluationError,
    ToolUse,
    load_episodes,
    load_errors,
    load_evaluation,
    load_tools,
)


class ToolChange(NamedTuple):
    """One tool, in all counted episodes of either evaluation."""

    tool: str
    before: ToolUse
    after: ToolUse


class ErrorChange(NamedTuple):
    """One class of unrecovered failures, in all counted episodes of either evaluation."""

    error_class: str
    before: ErrorUse
    after: ErrorUse


class EpisodePair(NamedTuple):
    """An attempt at a task before and one after, with different outcomes."""

    task_id: str
    before_episode_id: str
    after_episode_id: str


class Comparison(NamedTuple):
    """What changed from one evaluation to another."""

    before: Evaluation
    after: Evaluation
    tasks: int
    """That both have."""
    success: Interval
    """Mean over common tasks of the share of successful attempts after, less before."""
    reward: Interval
    """Mean over common tasks of the mean reward after, less before."""
    tools: tuple[ToolChange, ...]
    errors: tuple[ErrorChange, ...]
    """The one that was most frequent before comes first."""
    mended: tuple[EpisodePair, ...]
    """Tasks that succeed more often than before: an attempt that failed, and one that now succeeds."""
    broken: tuple[EpisodePair, ...]
    """Tasks that succeed less often than before: an attempt that succeeded, and one that now fails."""


Named = TypeVar("Named", ToolUse, ErrorUse)


def compare(store: Store, before_id: str, after_id: str, *, seed: int = 0) -> Comparison:
    """Compare two stored evaluations, task by task where both tried it.

    Args:
        store: An open store.
        before_id: ``name:model`` of the earlier one.
        after_id: ``name:model`` of the later one.
        seed: Of the bootstrap over common tasks.

    Raises:
        EvaluationError: One does not exist, or they have no task in common.
        StoreError: ClickHouse is out of reach.
    """
    before, after = load_evaluation(store, before_id), load_evaluation(store, after_id)
    old, new = (_by_task(load_episodes(store, each)) for each in (before, after))
    both = old.join(new, on="task_id", suffix="_after").sort("task_id")
    if both.is_empty():
        raise EvaluationError(
            f"{before_id} and {after_id} have no task in common ({before.task_set}; {after.task_set}).",
            next_step="Let both models work on the same task ids, and evaluate them again.",
        )
    old_tools, new_tools = _named(load_tools(store, before)), _named(load_tools(store, after))
    old_errors, new_errors = _named(load_errors(store, before)), _named(load_errors(store, after))
    return Comparison(
        before=before,
        after=after,
        tasks=both.height,
        success=_difference(both, "success", seed),
        reward=_difference(both, "reward", seed),
        tools=tuple(
            ToolChange(tool, old_tools.get(tool, _unused(tool)), new_tools.get(tool, _unused(tool)))
            for tool in sorted(old_tools.keys() | new_tools.keys())
        ),
        errors=tuple(
            ErrorChange(name, old_errors.get(name, ErrorUse(name, 0, 0)), new_errors.get(name, ErrorUse(name, 0, 0)))
            for name in (*old_errors, *(name for name in new_errors if name not in old_errors))
        ),
        mended=_pairs(both.filter(pl.col("success_after") > pl.col("success")), "failed", "succeeded_after"),
        broken=_pairs(both.filter(pl.col("success_after") < pl.col("success")), "succeeded", "failed_after"),
    )


def _by_task(episodes: pl.DataFrame) -> pl.DataFrame:
    """One row for each task: what it came to, and the first attempt that succeeded and that failed."""
    of_success = pl.col("episode_id").filter(pl.col("is_success"))
    of_failure = pl.col("episode_id").filter(~pl.col("is_success"))
    return (
        episodes.filter(pl.col("left_out") == "")
        .group_by("task_id")
        .agg(
            success=pl.col("is_success").mean(),
            reward=pl.col("reward").mean(),
            succeeded=of_success.min(),
            failed=of_failure.min(),
        )
    )


def _difference(both: pl.DataFrame, column: str, seed: int) -> Interval:
    return bootstrap_mean((both[f"{column}_after"] - both[column]).to_list(), seed=seed)


def _pairs(tasks: pl.DataFrame, before: str, after: str) -> tuple[EpisodePair, ...]:
    rows = tasks.select("task_id", before, after).iter_rows()
    return tuple(EpisodePair(str(task), str(old), str(new)) for task, old, new in rows)


def _named(found: Iterable[Named]) -> dict[str, Named]:
    return {each[0]: each for each in found}


def _unused(tool: str) -> ToolUse:
    return ToolUse(tool, 0, 0, 0, 0)
