"""Compare two evaluations: the paired difference by task, and changes of tools, errors and tasks."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

import polars as pl

from spanloop.foundation.settings.metric import Metric
from spanloop.store import Store

from .bootstrap import Interval
from .figures import differences, task_values
from .stored_evaluations import (
    ErrorUse,
    Evaluation,
    EvaluationError,
    Figure,
    ToolUse,
    load_episodes,
    load_errors,
    load_evaluation,
    load_tools,
)


class ToolChange(NamedTuple):
    """Use of one tool in the counted episodes of both evaluations."""

    tool: str
    before: ToolUse
    after: ToolUse


class ErrorChange(NamedTuple):
    """One class of unrecovered failures in the counted episodes of both evaluations."""

    error_class: str
    before: ErrorUse
    after: ErrorUse


class EpisodePair(NamedTuple):
    """Two attempts at a task, one in each evaluation, with different outcomes."""

    task_id: str
    before_episode_id: str
    after_episode_id: str


class Comparison(NamedTuple):
    """Changes from one evaluation to another."""

    before: Evaluation
    after: Evaluation
    tasks: int
    """Number of tasks in both evaluations."""
    success: Interval
    """Mean over common tasks of the difference (after minus before) in the share of successful attempts."""
    reward: Interval
    """Mean over common tasks of the difference (after minus before) in the mean reward."""
    figures: tuple[Figure, ...]
    """Mean difference (after minus before) of each figure over the common tasks that have it in both."""
    tools: tuple[ToolChange, ...]
    errors: tuple[ErrorChange, ...]
    """Sorted by frequency before, most frequent first."""
    mended: tuple[EpisodePair, ...]
    """Tasks with a higher success rate than before: an attempt that failed before, and one that succeeds after."""
    broken: tuple[EpisodePair, ...]
    """Tasks with a lower success rate than before: an attempt that succeeded before, and one that fails after."""


Use = TypeVar("Use", ToolUse, ErrorUse)


def compare(store: Store, before_id: str, after_id: str, *, seed: int = 0) -> Comparison:
    """Compare two stored evaluations on their common tasks.

    Args:
        store: The store.
        before_id: The ``name:model`` of the earlier evaluation.
        after_id: The ``name:model`` of the later evaluation.
        seed: Seed of the bootstrap.

    Raises:
        EvaluationError: An evaluation does not exist, or they have no task in common.
        StoreError: ClickHouse is unreachable.
    """
    before, after = load_evaluation(store, before_id), load_evaluation(store, after_id)
    attempts = [load_episodes(store, evaluation).filter(pl.col("left_out") == "") for evaluation in (before, after)]
    before_tasks, after_tasks = map(_by_task, attempts)
    common = before_tasks.join(after_tasks, on="task_id", suffix="_after").sort("task_id")
    if common.is_empty():
        raise EvaluationError(
            f"{before_id} and {after_id} have no task in common ({before.task_set}; {after.task_set}).",
            next_step="Run both models on the same task ids, then evaluate them again.",
        )
    classes = set(pl.concat(attempts)["error_classes"].explode().drop_nulls())
    figures = differences(*(task_values(each, extra_errors=classes) for each in attempts), seed=seed)
    changes = {figure.name: figure.interval for figure in figures}
    before_tools, after_tools = _by_name(load_tools(store, before)), _by_name(load_tools(store, after))
    before_errors, after_errors = _by_name(load_errors(store, before)), _by_name(load_errors(store, after))
    return Comparison(
        before=before,
        after=after,
        tasks=common.height,
        success=changes[Metric.SUCCESS],
        reward=changes[Metric.REWARD],
        figures=figures,
        tools=tuple(
            ToolChange(tool, before_tools.get(tool, _unused(tool)), after_tools.get(tool, _unused(tool)))
            for tool in sorted(before_tools.keys() | after_tools.keys())
        ),
        errors=tuple(
            ErrorChange(
                name, before_errors.get(name, ErrorUse(name, 0, 0)), after_errors.get(name, ErrorUse(name, 0, 0))
            )
            for name in (*before_errors, *(name for name in after_errors if name not in before_errors))
        ),
        mended=_pairs(common.filter(pl.col("success_after") > pl.col("success")), "failed", "succeeded_after"),
        broken=_pairs(common.filter(pl.col("success_after") < pl.col("success")), "succeeded", "failed_after"),
    )


def _by_task(episodes: pl.DataFrame) -> pl.DataFrame:
    """Return one row a task: mean success, and the first successful and the first failed attempt."""
    successful_ids = pl.col("episode_id").filter(pl.col("is_success"))
    failed_ids = pl.col("episode_id").filter(~pl.col("is_success"))
    return episodes.group_by("task_id").agg(
        success=pl.col("is_success").mean(), succeeded=successful_ids.min(), failed=failed_ids.min()
    )


def _pairs(tasks: pl.DataFrame, before: str, after: str) -> tuple[EpisodePair, ...]:
    rows = tasks.select("task_id", before, after).iter_rows()
    return tuple(EpisodePair(str(task), str(old), str(new)) for task, old, new in rows)


def _by_name(uses: Iterable[Use]) -> dict[str, Use]:
    return {use[0]: use for use in uses}


def _unused(tool: str) -> ToolUse:
    return ToolUse(tool, 0, 0, 0, 0)
