"""Figures of groups of tasks, by the value of a task's field: mean, standard deviation and count."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.converters.rewards.comparison import text_of
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.metric import Metric

from .figures import task_values

MISSING: Final = "(none)"
"""The group of tasks without the field."""
_SHOWN: Final = 12


class Spread(NamedTuple):
    """Mean and standard deviation over tasks."""

    mean: float
    deviation: float | None
    """Of the sample (n - 1); None for one task."""


class GroupFigures(NamedTuple):
    """Figures of the tasks with one value of a field."""

    value: str
    tasks: int
    attempts: int
    success: Spread
    reward: Spread


def group_by_field(attempts: pl.DataFrame, tasks: Iterable[Task], field: str) -> list[GroupFigures]:
    """Return the figures of each value of a field, by value; tasks weigh the same, however many attempts they have.

    Args:
        attempts: Attempts that count, with the columns of ``evaluation_episodes``.
        tasks: The tasks, with their fields.
        field: A field, or one within another: ``meta.level``.

    Raises:
        ConfigurationError: No task has the field.
    """
    known = {task.id: task for task in tasks}
    values = {task_id: _value(task, field) for task_id, task in known.items()}
    if not any(value is not None for value in values.values()):
        names = sorted({name for task in known.values() for name in task.fields})[:_SHOWN]
        raise ConfigurationError(
            f"No task has the field {field!r}; there are: {', '.join(names) or 'none'}.",
            next_step="Name one of them, and the tasks with --run or --tasks.",
        )
    counts = dict(attempts.group_by("task_id").len().iter_rows())
    groups: defaultdict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for row in task_values(attempts).select("task_id", Metric.SUCCESS, Metric.REWARD).iter_rows():
        groups[values.get(row[0]) or MISSING].append(row)
    return [
        GroupFigures(
            value,
            len(rows),
            sum(counts[row[0]] for row in rows),
            _spread([row[1] for row in rows]),
            _spread([row[2] for row in rows]),
        )
        for value, rows in sorted(groups.items())
    ]


def _value(task: Task, field: str) -> str | None:
    value: object = task.fields
    for name in [field] if field in task.fields else field.split("."):
        value = cast("Mapping[str, object]", value).get(name) if isinstance(value, Mapping) else None
    return None if value is None else text_of(value)


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
