"""Computes an evaluation from stored episodes and stores it.

The invariant: the episodes are inserted first and the evaluation, which names their revision, after them. So a reader
sees the one before or the new one, and never a half.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import polars as pl

from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store
from spanloop.training.job_spec import NAME_PATTERN

from .bootstrap import LEVEL, RESAMPLES, bootstrap_mean
from .stored_evaluations import Evaluation, EvaluationError, LeftOut, load_evaluation, load_evaluations

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS: Final = 1_000_000
_KEPT: Final = (
    "episode_id", "revision", "task_id", "left_out", "is_success", "reward", "error_class", "error_classes",
    "tool_calls", "failed_tool_calls",
)  # fmt: skip


def evaluate(
    store: Store,
    *,
    name: str,
    model: str,
    task_prefix: str = "",
    task_ids: Sequence[str] = (),
    since: datetime | None = None,
    seed: int = 0,
) -> Evaluation:
    """Say how well ``model`` did in the episodes that the store has now, and store that under ``name:model``.

    An episode counts when it was scored and nobody but ``model`` acted in it; it is a success when its ``outcome`` says
    so: by the label of its score, else by a reward of at least the converter's ``success_threshold`` (0.5). Tasks weigh
    the same, however many attempts each has. A task is its task id, else its group: equal first prompts.

    Args:
        store: An open store.
        name: Of the evaluation, the same for all models that are to be compared. What is stored under this name for
            this model is replaced.
        model: ``name@version``.
        task_prefix: Only tasks whose id starts with this.
        task_ids: Only these tasks; empty means all.
        since: Only episodes that started at this time or later; it must name its zone.
        seed: Of the bootstrap.

    Raises:
        ConfigurationError: ``name`` is none, or ``since`` names no zone.
        EvaluationError: No episode counts; nothing was stored.
        StoreError: ClickHouse is out of reach; nothing was stored.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigurationError(f"The name of an evaluation must match {NAME_PATTERN}, got {name!r}.")
    if since is not None and since.tzinfo is None:
        raise ConfigurationError(f"since is {since.isoformat()}, expected a time with its zone.")
    start = _EPOCH if since is None else since.astimezone(UTC)
    asked = {"model": model, "task_prefix": task_prefix, "task_ids": list(task_ids)}
    found = _judge(store.query("evaluation_source", **asked, since=start), model)
    counted = found.filter(pl.col("left_out") == "")
    left_out = {str(reason): int(count) for reason, count in found["left_out"].value_counts().rows() if reason}
    if counted.is_empty():
        raise _nothing(store, model, left_out, _in_words(task_prefix, task_ids, since))
    by_task = counted.group_by("task_id").agg(pl.col("is_success", "reward").mean()).sort("task_id")
    evaluation_id, now = f"{name}:{model}", datetime.now(UTC)
    evaluation = Evaluation(
        evaluation_id=evaluation_id,
        revision=_next_revision(store, name, model, now),
        name=name,
        model=model,
        task_set=_in_words(task_prefix, task_ids, since),
        created_at=now,
        started_at=min(counted["started_at"].to_list()),
        episodes=counted.height,
        tasks=by_task.height,
        success=bootstrap_mean(by_task["is_success"].to_list(), seed=seed),
        reward=bootstrap_mean(by_task["reward"].to_list(), seed=seed),
        left_out=dict(sorted(left_out.items())),
        level=LEVEL,
        resamples=RESAMPLES,
        seed=seed,
        parameters=json.dumps(asked | {"since": None if since is None else start.isoformat()}),
        converter_version=",".join(sorted(set(counted["converter_version"].to_list()))),
    )
    _store(store, evaluation, found)
    return load_evaluation(store, evaluation_id)


def _judge(frame: pl.DataFrame, model: str) -> pl.DataFrame:
    others = pl.col("policy_versions").list.set_difference([model]).list.len() > 0
    scored = pl.col("reward").is_not_null() & pl.col("outcome").is_in(["success", "failure"])
    return frame.with_columns(
        is_success=pl.col("outcome") == "success",
        left_out=pl.when(others)
        .then(pl.lit(LeftOut.OTHER_VERSION.value))
        .when(scored)
        .then(pl.lit(""))
        .when(pl.col("is_terminated"))
        .then(pl.lit(LeftOut.NO_REWARD.value))
        .otherwise(pl.lit(LeftOut.INCOMPLETE.value)),
    )


def _next_revision(store: Store, name: str, model: str, now: datetime) -> int:
    """Greater than the stored one, even when the clock was set back."""
    stored = max((each.revision for each in load_evaluations(store, name=name, model=model)), default=0)
    return max(stored + 1, int(now.timestamp() * _MICROSECONDS))


def _store(store: Store, evaluation: Evaluation, found: pl.DataFrame) -> None:
    episodes = found.select(_KEPT).with_columns(
        evaluation_id=pl.lit(evaluation.evaluation_id),
        evaluation_revision=pl.lit(evaluation.revision, pl.UInt64),
    )
    store.insert("evaluation_episodes", episodes)
    row = evaluation._asdict()
    success, reward = row.pop("success"), row.pop("reward")
    row |= {"success": success.value, "success_low": success.low, "success_high": success.high}
    row |= {"mean_reward": reward.value, "reward_low": reward.low, "reward_high": reward.high}
    store.insert("evaluations", pl.DataFrame([row], schema=store.schema("evaluations")))


def _in_words(task_prefix: str, task_ids: Sequence[str], since: datetime | None) -> str:
    which = f"{len(task_ids)} named tasks" if task_ids else "all tasks"
    which += f" that start with {task_prefix}" if task_prefix else ""
    return which + (f" since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if since else "")


def _nothing(store: Store, model: str, left_out: dict[str, int], tasks: str) -> EvaluationError:
    if left_out:
        account = ", ".join(f"{reason} {count}" for reason, count in sorted(left_out.items()))
        return EvaluationError(
            f"No episode of {model} counts ({tasks}); left out: {account}.",
            next_step="Let the app call reward(…) in each attempt, wait for its end, then run spanloop convert.",
        )
    known = ", ".join(map(str, store.query("evaluation_models")["policy_version"])) or "none"
    return EvaluationError(
        f"The store has no episode of {model} ({tasks}); policy versions with episodes: {known}.",
        next_step="Deploy it, let the app work on the tasks, then run spanloop convert.",
    )
