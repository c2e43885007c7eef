"""Load stored evaluations: figures, episodes, tools and errors."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl

from spanloop.foundation.errors import SpanloopError
from spanloop.store import Store

from .bootstrap import Interval


class EvaluationError(SpanloopError):
    """Raised when nothing can be evaluated or compared, or an evaluation does not exist."""


class LeftOut(StrEnum):
    """Reason why an attempt does not count."""

    OTHER_VERSION = "other_version"
    """Another policy version took part in it."""
    TRAINING_TASK = "training_task"
    """The version, or an ancestor of it, was trained on the task."""


class EvaluatedState(StrEnum):
    """Whether an attempt has a score, and if not, why it is a failure."""

    SCORED = "scored"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    UNSCORED = "unscored"
    """It ended, and nothing scored it."""
    INCOMPLETE = "incomplete"
    """Nothing scored it and it has not ended: it still runs, or its agent was stopped."""


class Evaluation(NamedTuple):
    """Figures of one policy version on one set of tasks."""

    evaluation_id: str
    """``name:model``."""
    revision: int
    """Time of the computation in microseconds since the epoch."""
    name: str
    """The same for all models that are compared."""
    model: str
    """``name@version``."""
    task_set: str
    """Description of the selected tasks."""
    created_at: datetime
    started_at: datetime
    """Start of the first attempt that counts."""
    episodes: int
    """Number of attempts that count."""
    tasks: int
    success: Interval
    """Mean over tasks of the share of successful attempts."""
    reward: Interval
    """Mean over tasks of the mean reward of its attempts."""
    left_out: Mapping[str, int]
    """Number of attempts that do not count, by `LeftOut`."""
    states: Mapping[str, int]
    """Number of attempts that count, by `EvaluatedState`; empty for an evaluation of an earlier spanloop."""
    training_tasks: int
    """Number of tasks that count although the version was trained on them."""
    level: float
    resamples: int
    seed: int
    parameters: str
    """JSON object of the selection's parameters."""
    converter_version: str


class Figure(NamedTuple):
    """A figure of an evaluation: a mean over tasks."""

    name: str
    """A `Metric`, ``pass@k``, or ``error:`` and a failure class."""
    interval: Interval
    tasks: int
    """That have it."""


class ToolUse(NamedTuple):
    """Use of one tool in the counted episodes of an evaluation."""

    tool: str
    calls: int
    failed_calls: int
    episodes: int
    """Number of episodes that called it."""
    successes: int
    """Number of these episodes that succeeded."""

    @property
    def success(self) -> float | None:
        """Success rate of the episodes with this tool; None if there are none."""
        return self.successes / self.episodes if self.episodes else None


class ErrorUse(NamedTuple):
    """Number of counted episodes of an evaluation with an unrecovered failure of one class."""

    error_class: str
    episodes: int
    decided: int
    """Number of these episodes whose outcome it decided."""


def load_evaluations(store: Store, *, name: str = "", model: str = "") -> list[Evaluation]:
    """Load stored evaluations, by name and then by the start of their first episode.

    Args:
        store: The store.
        name: Only evaluations of this name; empty for all.
        model: Only evaluations of this ``name@version``; empty for all.
    """
    return _load(store, evaluation_id="", name=name, model=model)


def load_evaluation(store: Store, evaluation_id: str) -> Evaluation:
    """Load one evaluation.

    Raises:
        EvaluationError: There is no such evaluation; the message names the stored ones.
    """
    if matches := _load(store, evaluation_id=evaluation_id, name="", model="") if evaluation_id else []:
        return matches[0]
    stored_ids = ", ".join(evaluation.evaluation_id for evaluation in load_evaluations(store)) or "none yet"
    raise EvaluationError(
        f"There is no evaluation {evaluation_id!r}; stored: {stored_ids}.",
        next_step="Create one: spanloop evaluate NAME@VERSION",
    )


def load_episodes(store: Store, evaluation: Evaluation) -> pl.DataFrame:
    """Load the attempts of an evaluation, including those that do not count (``left_out``), by task.

    Returns:
        The columns of the table ``evaluation_episodes``.
    """
    return store.query("evaluation_episodes", **_key(evaluation))


def load_figures(store: Store, evaluation: Evaluation) -> tuple[Figure, ...]:
    """Load the figures; none for an evaluation of an earlier spanloop."""
    rows = store.query("evaluation_figures", **_key(evaluation)).iter_rows()
    return tuple(Figure(str(name), Interval(*ends), int(tasks)) for name, *ends, tasks in rows)


def load_tools(store: Store, evaluation: Evaluation) -> tuple[ToolUse, ...]:
    """Load each called tool, by name."""
    rows = store.query("evaluation_tools", **_key(evaluation)).iter_rows()
    return tuple(
        ToolUse(str(tool), int(calls), int(failed), int(episodes), int(succeeded))
        for tool, calls, failed, episodes, succeeded in rows
    )


def load_errors(store: Store, evaluation: Evaluation) -> tuple[ErrorUse, ...]:
    """Load each class of unrecovered failures, most frequent first."""
    rows = store.query("evaluation_errors", **_key(evaluation)).iter_rows()
    return tuple(ErrorUse(str(error_class), int(episodes), int(decided)) for error_class, episodes, decided in rows)


def _key(evaluation: Evaluation) -> dict[str, object]:
    return {"evaluation_id": evaluation.evaluation_id, "evaluation_revision": evaluation.revision}


def _load(store: Store, **filters: str) -> list[Evaluation]:
    return [_from_row(row) for row in store.query("evaluation_list", **filters).to_dicts()]


def _from_row(row: dict[str, Any]) -> Evaluation:
    success = Interval(*(row.pop(name) for name in ("success", "success_low", "success_high")))
    reward = Interval(*(row.pop(name) for name in ("mean_reward", "reward_low", "reward_high")))
    return Evaluation(success=success, reward=reward, **row)
