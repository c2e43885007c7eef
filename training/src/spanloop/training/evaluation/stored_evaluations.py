"""Stored evaluations, as they are read."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

import polars as pl

from spanloop.semconv.errors import SpanloopError
from spanloop.store import Store

from .bootstrap import Interval


class EvaluationError(SpanloopError):
    """There is nothing to evaluate or to compare, or no such evaluation."""


class LeftOut(StrEnum):
    """Why an episode does not count."""

    INCOMPLETE = "incomplete"
    """It was not scored and did not come to an end: it is still under way, or its agent was stopped."""
    NO_REWARD = "no_reward"
    """It came to an end and was not scored."""
    OTHER_VERSION = "other_version"
    """Another policy version acted in it too."""


class Evaluation(NamedTuple):
    """How well one policy version did on one set of tasks."""

    evaluation_id: str
    """``name:model``."""
    revision: int
    """Microseconds since the epoch when it was computed."""
    name: str
    """The same for all models that are compared."""
    model: str
    """``name@version``."""
    task_set: str
    """Which tasks were asked for, in words."""
    created_at: datetime
    started_at: datetime
    """Of the first episode that counts."""
    episodes: int
    """That count."""
    tasks: int
    success: Interval
    """Mean over tasks of the share of its attempts that succeeded, as the converter's ``outcome`` has it."""
    reward: Interval
    """Mean over tasks of the mean reward of its attempts."""
    left_out: Mapping[str, int]
    """Episodes that do not count, by `LeftOut`."""
    level: float
    resamples: int
    seed: int
    parameters: str
    """JSON: what was asked for."""
    converter_version: str


class ToolUse(NamedTuple):
    """How the counted episodes of an evaluation used one tool."""

    tool: str
    calls: int
    failed_calls: int
    episodes: int
    """In which it was called."""
    successes: int
    """Of these episodes."""

    @property
    def success(self) -> float | None:
        """Share of the episodes with this tool that succeeded; None when there are none."""
        return self.successes / self.episodes if self.episodes else None


class ErrorUse(NamedTuple):
    """How many counted episodes of an evaluation had an unrecovered failure of one class."""

    error_class: str
    episodes: int
    decided: int
    """Of these, those whose outcome it decided."""


def load_evaluations(store: Store, *, name: str = "", model: str = "") -> list[Evaluation]:
    """The stored evaluations, by name and in the order in which their models were first tried.

    Args:
        store: An open store.
        name: Only those of this name; empty for all.
        model: Only those of this ``name@version``; empty for all.
    """
    return _load(store, evaluation_id="", name=name, model=model)


def load_evaluation(store: Store, evaluation_id: str) -> Evaluation:
    """One evaluation.

    Raises:
        EvaluationError: There is none of this id; names those that there are.
    """
    if found := _load(store, evaluation_id=evaluation_id, name="", model="") if evaluation_id else []:
        return found[0]
    known = ", ".join(each.evaluation_id for each in load_evaluations(store)) or "none yet"
    raise EvaluationError(
        f"There is no evaluation {evaluation_id!r}; stored: {known}.",
        next_step="spanloop evaluate NAME@VERSION makes one.",
    )


def load_episodes(store: Store, evaluation: Evaluation) -> pl.DataFrame:
    """Its episodes, those that do not count too.

    Returns:
        Columns ``episode_id``, ``revision``, ``task_id``, ``left_out`` (empty when it counts), ``is_success``,
        ``reward``, ``error_class``, ``error_classes`` (list), ``tool_calls`` and ``failed_tool_calls`` (maps), by task.
    """
    return store.query("evaluation_episodes", **_key(evaluation))


def load_tools(store: Store, evaluation: Evaluation) -> tuple[ToolUse, ...]:
    """Each tool that was called, by name."""
    rows = store.query("evaluation_tools", **_key(evaluation)).iter_rows()
    return tuple(ToolUse(str(tool), int(calls), int(bad), int(of), int(good)) for tool, calls, bad, of, good in rows)


def load_errors(store: Store, evaluation: Evaluation) -> tuple[ErrorUse, ...]:
    """Each class of unrecovered failure, the most frequent first."""
    rows = store.query("evaluation_errors", **_key(evaluation)).iter_rows()
    return tuple(ErrorUse(str(error_class), int(episodes), int(decided)) for error_class, episodes, decided in rows)


def _key(evaluation: Evaluation) -> dict[str, object]:
    return {"evaluation_id": evaluation.evaluation_id, "evaluation_revision": evaluation.revision}


def _load(store: Store, **filters: str) -> list[Evaluation]:
    return [_of_row(row) for row in store.query("evaluation_list", **filters).to_dicts()]


def _of_row(row: dict[str, Any]) -> Evaluation:
    success = Interval(*(row.pop(name) for name in ("success", "success_low", "success_high")))
    reward = Interval(*(row.pop(name) for name in ("mean_reward", "reward_low", "reward_high")))
    return Evaluation(success=success, reward=reward, **row)
