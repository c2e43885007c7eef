"""Evaluate a policy version on stored attempts, and store the evaluation.

Invariant: the attempts and figures are inserted before the evaluation, which names their revision. So a reader sees the
previous evaluation or the new one, never a part.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import polars as pl

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.metric import Metric
from spanloop.foundation.tables.evaluation import EVALUATION_EPISODES, EVALUATION_FIGURES, EVALUATIONS
from spanloop.foundation.version_names import NAME_PATTERN
from spanloop.store import Store

from .attempts import Rules, Selection, load_attempts
from .bootstrap import LEVEL, RESAMPLES
from .figures import figures, task_values
from .reference_calls import NO_REFERENCES, ReferenceCalls
from .stored_evaluations import Evaluation, EvaluationError, Figure, LeftOut, load_evaluation, load_evaluations
from .trained_tasks import TrainedTasks

_MICROSECONDS: Final = 1_000_000
_SHOWN_TASKS: Final = 5


def evaluate(
    store: Store,
    *,
    name: str,
    model: str,
    trained: TrainedTasks,
    allow_training_tasks: bool = False,
    task_prefix: str = "",
    task_ids: Sequence[str] = (),
    since: datetime | None = None,
    run_ids: Sequence[str] = (),
    references: ReferenceCalls = NO_REFERENCES,
    reward_floor: float = 0.0,
    seed: int = 0,
) -> Evaluation:
    """Evaluate ``model`` on the attempts in the store, and store the evaluation as ``name:model``.

    Attempts are those of the task runner and, without ``run_ids``, all other episodes of the version. One that crashed,
    ran out of time, never ended or was not scored is a failure. One that another policy version took part in does not
    count, nor does a task that the version was trained on. Success is the grader's verdict, else the episode's
    ``outcome``: the label of its score, else a reward of at least 0.5. All tasks have the same weight, however many
    attempts they have. A task is a task id, else a group: equal first prompts.

    Args:
        store: The store.
        name: Name of the evaluation, the same for all models to compare. Replaces a stored evaluation of this name
            and model.
        model: The policy version, ``name@version``; for a run at another endpoint the name that it used.
        trained: What the version and its ancestors were trained on: `spanloop.training.dataset.trained_tasks`.
        allow_training_tasks: Let tasks of the training count; the evaluation says how many.
        task_prefix: Only tasks whose id starts with this.
        task_ids: Only these tasks; empty means all.
        since: Only attempts that started at this time or later; must have a time zone.
        run_ids: Only attempts of these runs of the task runner; empty means all.
        references: Reference calls of tasks, for the figures of tool calls.
        reward_floor: Reward of an attempt that counts as a failure because it has no score.
        seed: Seed of the bootstrap.

    Raises:
        ConfigurationError: ``name`` is invalid, or ``since`` has no time zone.
        EvaluationError: No attempt counts; nothing is stored.
        StoreError: ClickHouse is unreachable; nothing is stored.
    """
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigurationError(f"The name of an evaluation must match {NAME_PATTERN}, got {name!r}.")
    if since is not None and since.tzinfo is None:
        raise ConfigurationError(f"since is {since.isoformat()}, expected a time with its zone.")
    selection = Selection(model, task_prefix, tuple(task_ids), since, tuple(run_ids))
    attempts = load_attempts(store, selection, Rules(trained, allow_training_tasks, reward_floor, references))
    counted = attempts.filter(pl.col("left_out") == "")
    if counted.is_empty():
        raise _no_attempts(store, selection, attempts)
    values = task_values(counted)
    measured = figures(values, seed=seed)
    intervals = {figure.name: figure.interval for figure in measured}
    now = datetime.now(UTC)
    evaluation = Evaluation(
        evaluation_id=f"{name}:{model}",
        revision=_next_revision(store, name, model, now),
        name=name,
        model=model,
        task_set=_describe(selection),
        created_at=now,
        started_at=min(counted["started_at"].to_list()),
        episodes=counted.height,
        tasks=values.height,
        success=intervals[Metric.SUCCESS],
        reward=intervals[Metric.REWARD],
        left_out=_counts(attempts["left_out"]),
        states=_counts(counted["state"]),
        training_tasks=counted.filter(pl.col("is_training_task"))["task_id"].n_unique(),
        level=LEVEL,
        resamples=RESAMPLES,
        seed=seed,
        parameters=json.dumps(
            {
                **{field: value for field, value in selection._asdict().items() if field != "since"},
                "since": None if since is None else since.astimezone(UTC).isoformat(),
                "allow_training_tasks": allow_training_tasks,
                "reward_floor": reward_floor,
            }
        ),
        converter_version=",".join(sorted({version for version in counted["converter_version"] if version})),
    )
    _insert(store, evaluation, attempts, measured)
    return load_evaluation(store, evaluation.evaluation_id)


def _counts(values: pl.Series) -> dict[str, int]:
    return dict(sorted((str(value), int(count)) for value, count in values.value_counts().iter_rows() if value))


def _next_revision(store: Store, name: str, model: str, now: datetime) -> int:
    """Return a revision greater than the stored one, even if the clock was set back."""
    stored = max((evaluation.revision for evaluation in load_evaluations(store, name=name, model=model)), default=0)
    return max(stored + 1, int(now.timestamp() * _MICROSECONDS))


def _insert(store: Store, evaluation: Evaluation, attempts: pl.DataFrame, measured: Sequence[Figure]) -> None:
    evaluation_id, revision = evaluation.evaluation_id, evaluation.revision
    key = {"evaluation_id": pl.lit(evaluation_id), "evaluation_revision": pl.lit(revision, pl.UInt64)}
    columns = [column for column in EVALUATION_EPISODES.required if column not in key]
    store.insert(EVALUATION_EPISODES.name, attempts.select(columns).with_columns(**key))
    figure_columns: dict[str, Sequence[object]] = {
        "evaluation_id": [evaluation_id] * len(measured),
        "evaluation_revision": [revision] * len(measured),
        "position": range(len(measured)),
        "figure": [figure.name for figure in measured],
        "value": [figure.interval.value for figure in measured],
        "low": [figure.interval.low for figure in measured],
        "high": [figure.interval.high for figure in measured],
        "tasks": [figure.tasks for figure in measured],
    }
    store.insert(EVALUATION_FIGURES.name, EVALUATION_FIGURES.frame(figure_columns))
    row = evaluation._asdict()
    success, reward = row.pop("success"), row.pop("reward")
    row |= {"success": success.value, "success_low": success.low, "success_high": success.high}
    row |= {"mean_reward": reward.value, "reward_low": reward.low, "reward_high": reward.high}
    store.insert(EVALUATIONS.name, EVALUATIONS.from_dicts([row]))


def _describe(selection: Selection) -> str:
    description = f"{len(selection.task_ids)} named tasks" if selection.task_ids else "all tasks"
    description += f" that start with {selection.task_prefix}" if selection.task_prefix else ""
    description += f" of run {', '.join(selection.run_ids)}" if selection.run_ids else ""
    since = selection.since
    return description + (f" since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if since else "")


def _no_attempts(store: Store, selection: Selection, attempts: pl.DataFrame) -> EvaluationError:
    model, tasks = selection.model, _describe(selection)
    if not attempts.is_empty():
        left_out = _counts(attempts["left_out"])
        counts = ", ".join(f"{reason} {count}" for reason, count in left_out.items())
        refused = attempts.filter(pl.col("left_out") == LeftOut.TRAINING_TASK.value)["task_id"].unique().sort()
        named = f" ({', '.join(refused[:_SHOWN_TASKS])}{', …' if len(refused) > _SHOWN_TASKS else ''})"
        return EvaluationError(
            f"No attempt of {model} counts ({tasks}); left out: {counts}{named if len(refused) else ''}.",
            next_step="Evaluate on tasks that it was not trained on, or say that these count: --allow-training-tasks"
            if len(refused)
            else "Let one version alone make each attempt, then evaluate again.",
        )
    if selection.run_ids:
        runs = store.query("attempt_runs", run_id="").filter(pl.col("run_id").is_in(selection.run_ids))
        made = ", ".join(f"{run} by {made_by}" for run, made_by in runs.select("run_id", "model").iter_rows())
        return EvaluationError(
            f"The store has no attempt of {model} ({tasks}); attempts: {made or 'none'}.",
            next_step=f"spanloop run TASKS --agent COMMAND --model {model}",
        )
    versions = ", ".join(map(str, store.query("evaluation_models")["policy_version"])) or "none"
    return EvaluationError(
        f"The store has no episode of {model} ({tasks}); policy versions with episodes: {versions}.",
        next_step="Deploy it, run the app on the tasks, then run spanloop convert.",
    )
