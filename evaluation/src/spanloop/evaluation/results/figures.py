"""The figures of attempts: means over tasks with bootstrap intervals, and their differences between two versions.

Tasks weigh the same, however many attempts they have. A figure is of the tasks that have it: tokens need an episode,
the figures of tool calls need reference calls.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import polars as pl

from spanloop.foundation.settings.metric import Metric

from .bootstrap import Floats, bootstrap_means
from .stored_evaluations import EvaluatedState, Figure

ERROR_PREFIX: Final = "error:"
"""Before a failure class: the share of attempts with such a failure that was not recovered."""
_CRASHED: Final = tuple(
    state.value for state in (EvaluatedState.CRASHED, EvaluatedState.TIMED_OUT, EvaluatedState.INCOMPLETE)
)
_UNKNOWN_STATE: Final = ""
"""Of the rows of earlier evaluations."""


def pass_at_k(attempts: int, successes: int, k: int) -> float:
    """Return the unbiased estimate that one of ``k`` attempts at a task succeeds (Chen et al. 2021, equation 1)."""
    return 1.0 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def task_values(attempts: pl.DataFrame, *, extra_errors: Iterable[str] = ()) -> pl.DataFrame:
    """Return one row for each task, by id: ``task_id`` and a column for each figure, null where the task has none.

    Args:
        attempts: Attempts that count, with the columns of ``evaluation_episodes``.
        extra_errors: Failure classes that get a column even when no attempt has them.
    """
    classes = sorted({*extra_errors, *attempts["error_classes"].explode().drop_nulls()})
    state = pl.col("state")
    is_crash = pl.when(state != _UNKNOWN_STATE).then(state.is_in(_CRASHED).cast(pl.Float64))
    has_error = (pl.col("error_classes").list.len() > 0) | state.is_in(_CRASHED)
    by_task = attempts.group_by("task_id").agg(
        pl.len().alias("attempts"),
        pl.col("is_success").sum().alias("successes"),
        pl.col("is_success").mean().alias(Metric.SUCCESS),
        pl.col("reward").mean().alias(Metric.REWARD),
        is_crash.mean().alias(Metric.CRASHES),
        has_error.mean().alias(Metric.ERRORS),
        *(
            pl.col(metric.value).mean()
            for metric in (
                Metric.LATENCY,
                Metric.TOKENS,
                Metric.STEPS,
                Metric.TOOL_SELECTION,
                Metric.PLAN_SUCCESS,
                Metric.STEP_EFFICIENCY,
            )
        ),
        *(pl.col("error_classes").list.contains(name).mean().alias(f"{ERROR_PREFIX}{name}") for name in classes),
    )
    passes = [
        pl.Series(
            f"pass@{k}",
            [pass_at_k(made, good, k) for made, good in by_task.select("attempts", "successes").iter_rows()],
        )
        for k in _ks(by_task["attempts"].to_list())
    ]
    return by_task.with_columns(passes).drop("attempts", "successes").sort("task_id")


def figures(values: pl.DataFrame, *, seed: int) -> tuple[Figure, ...]:
    """Return each figure of `task_values` that a task has, with its interval; deterministic for a seed."""
    columns = [name for name in values.columns if name != "task_id" and values[name].null_count() < values.height]
    intervals = bootstrap_means(_matrix(values, columns), seed=seed)
    return tuple(
        Figure(name, interval, values.height - values[name].null_count())
        for name, interval in zip(columns, intervals, strict=True)
    )


def differences(before: pl.DataFrame, after: pl.DataFrame, *, seed: int) -> tuple[Figure, ...]:
    """Return the mean difference (after minus before) of each figure over the tasks that have it in both."""
    columns = [name for name in before.columns if name in after.columns and name != "task_id"]
    common = before.join(after, on="task_id", suffix="_after").sort("task_id")
    changes = common.select("task_id", *(pl.col(f"{name}_after") - pl.col(name).alias(name) for name in columns))
    return figures(changes.rename({f"{name}_after": name for name in columns}), seed=seed)


def _matrix(values: pl.DataFrame, columns: Sequence[str]) -> Floats:
    return np.column_stack(
        [values[name].cast(pl.Float64).fill_null(float("nan")).to_numpy().astype(np.float64) for name in columns]
    )


def _ks(attempts: Sequence[int]) -> list[int]:
    """Return 2, 4, 8, … and the number of attempts that every task has."""
    least = min(attempts, default=0)
    powers = (2**exponent for exponent in range(1, least.bit_length()))
    return sorted({k for k in (*powers, least) if k > 1})
