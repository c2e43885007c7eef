"""Evaluate a policy version on stored episodes, and store the evaluation.

Invariant: the episodes are inserted before the evaluation, which names their revision. So a reader sees the previous
evaluation or the new one, never a part.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import polars as pl

from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store
from spanloop.training.version_names import NAME_PATTERN

from .bootstrap import LEVEL, RESAMPLES, bootstrap_mean
from .stored_evaluations import Evaluation, EvaluationError, LeftOut, load_evaluation, load_evaluations

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS: Final = 1_000_000
_STORED_COLUMNS: Final = (
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
    """Evaluate ``model`` on the episodes in the store, and store the evaluation as ``name:model``.

    An episode counts if it was scored and used no other policy version than ``model``. Its ``outcome`` is a success by
    the label of its score, else by a reward of at least the converter's ``success_threshold`` (0.5). All tasks have the
    same weight, however many attempts they have. A task is a task id, else a group: equal first prompts.

    Args:
        store: The store.
        name: Name of the evaluation, the same for all models to compare. Replaces a stored evaluation of this name
            and model.
        model: The policy version, ``name@version``.
        task_prefix: Only tasks whose id starts with this.
        task_ids: Only these tasks; empty means all.
        since: Only episodes that started at this time or later; must have a time zone.
        seed: Seed of the bootstrap.

    Raises:
        ConfigurationError: ``name`` is invalid, or ``since`` has no time zone.
        EvaluationError: No episode counts; nothing is stored.
        StoreError: ClickHouse is unreachable; nothing is stored.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigurationError(f"The name of an evaluation must match {NAME_PATTERN}, got {name!r}.")
    if since is not None and since.tzinfo is None:
        raise ConfigurationError(f"since is {since.isoformat()}, expected a time with its zone.")
    start = _EPOCH if since is None else since.astimezone(UTC)
    selection = {"model": model, "task_prefix": task_prefix, "task_ids": list(task_ids)}
    episodes = _classify(store.query("evaluation_source", **selection, since=start), model)
    counted = episodes.filter(pl.col("left_out") == "")
    left_out = {str(reason): int(count) for reason, count in episodes["left_out"].value_counts().rows() if reason}
    if counted.is_empty():
        raise _no_episodes(store, model, left_out, _describe_tasks(task_prefix, task_ids, since))
    by_task = counted.group_by("task_id").agg(pl.col("is_success", "reward").mean()).sort("task_id")
    evaluation_id, now = f"{name}:{model}", datetime.now(UTC)
    evaluation = Evaluation(
        evaluation_id=evaluation_id,
        revision=_next_revision(store, name, model, now),
        name=name,
        model=model,
        task_set=_describe_tasks(task_prefix, task_ids, since),
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
        parameters=json.dumps(selection | {"since": None if since is None else start.isoformat()}),
        converter_version=",".join(sorted(set(counted["converter_version"].to_list()))),
    )
    _insert(store, evaluation, episodes)
    return load_evaluation(store, evaluation_id)


def _classify(frame: pl.DataFrame, model: str) -> pl.DataFrame:
    has_other_versions = pl.col("policy_versions").list.set_difference([model]).list.len() > 0
    scored = pl.col("reward").is_not_null() & pl.col("outcome").is_in(["success", "failure"])
    return frame.with_columns(
        is_success=pl.col("outcome") == "success",
        left_out=pl.when(has_other_versions)
        .then(pl.lit(LeftOut.OTHER_VERSION.value))
        .when(scored)
        .then(pl.lit(""))
        .when(pl.col("is_terminated"))
        .then(pl.lit(LeftOut.NO_REWARD.value))
        .otherwise(pl.lit(LeftOut.INCOMPLETE.value)),
    )


def _next_revision(store: Store, name: str, model: str, now: datetime) -> int:
    """Return a revision greater than the stored one, even if the clock was set back."""
    stored = max((evaluation.revision for evaluation in load_evaluations(store, name=name, model=model)), default=0)
    return max(stored + 1, int(now.timestamp() * _MICROSECONDS))


def _insert(store: Store, evaluation: Evaluation, episodes: pl.DataFrame) -> None:
    rows = episodes.select(_STORED_COLUMNS).with_columns(
        evaluation_id=pl.lit(evaluation.evaluation_id), evaluation_revision=pl.lit(evaluation.revision, pl.UInt64)
    )
    store.insert("evaluation_episodes", rows)
    row = evaluation._asdict()
    success, reward = row.pop("success"), row.pop("reward")
    row |= {"success": success.value, "success_low": success.low, "success_high": success.high}
    row |= {"mean_reward": reward.value, "reward_low": reward.low, "reward_high": reward.high}
    store.insert("evaluations", pl.DataFrame([row], schema=store.schema("evaluations")))


def _describe_tasks(task_prefix: str, task_ids: Sequence[str], since: datetime | None) -> str:
    description = f"{len(task_ids)} named tasks" if task_ids else "all tasks"
    description += f" that start with {task_prefix}" if task_prefix else ""
    return description + (f" since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if since else "")


def _no_episodes(store: Store, model: str, left_out: dict[str, int], tasks: str) -> EvaluationError:
    if left_out:
        counts = ", ".join(f"{reason} {count}" for reason, count in sorted(left_out.items()))
        return EvaluationError(
            f"No episode of {model} counts ({tasks}); left out: {counts}.",
            next_step="Call reward(…) in each attempt of the app, wait until it ends, then run spanloop convert.",
        )
    versions = ", ".join(map(str, store.query("evaluation_models")["policy_version"])) or "none"
    return EvaluationError(
        f"The store has no episode of {model} ({tasks}); policy versions with episodes: {versions}.",
        next_step="Deploy it, run the app on the tasks, then run spanloop convert.",
    )
