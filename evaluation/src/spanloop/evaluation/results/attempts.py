"""The attempts of a policy version that an evaluation counts, each with its figures.

Invariant: an attempt that crashed, ran out of time, never ended or was not scored is a failure, never a gap: attempts
of the task runner count also when they left no span. Left out are attempts that another version took part in, and
tasks that the version was trained on, each with the reason.
"""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.store import Store

from .reference_calls import NO_CALLS, NO_REFERENCES, ReferenceCalls, compare_calls, parse_calls
from .stored_evaluations import EvaluatedState, LeftOut
from .trained_tasks import TrainedTasks, trained_task_ids

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE: Final = 1_000
_ENDED_BADLY: Final = (EvaluatedState.CRASHED.value, EvaluatedState.TIMED_OUT.value)


class Selection(NamedTuple):
    """What is evaluated."""

    model: str
    """``name@version``; for attempts at another endpoint the name that the run has."""
    task_prefix: str = ""
    task_ids: tuple[str, ...] = ()
    """Empty means all."""
    since: datetime | None = None
    run_ids: tuple[str, ...] = ()
    """Of the task runner; empty means all episodes and all runs."""


class Rules(NamedTuple):
    """What counts."""

    trained: TrainedTasks
    """What the version and its ancestors were trained on."""
    allows_training_tasks: bool = False
    reward_floor: float = 0.0
    """Reward of an attempt that crashed, ran out of time, never ended or was not scored."""
    references: ReferenceCalls = NO_REFERENCES


def load_attempts(store: Store, selection: Selection, rules: Rules) -> pl.DataFrame:
    """Return a row for each attempt, those that are left out too.

    The columns are those of ``evaluation_episodes``, and ``started_at``, ``task_digest`` and ``converter_version``.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    parameters: dict[str, Any] = {
        "model": selection.model,
        "task_prefix": selection.task_prefix,
        "task_ids": list(selection.task_ids),
        "since": _EPOCH if selection.since is None else selection.since.astimezone(UTC),
        "run_ids": list(selection.run_ids),
    }
    runs, episodes = store.query("evaluation_attempts", **parameters), store.query("evaluation_source", **parameters)
    attempts = _classified(_joined(runs, episodes), selection.model, rules.reward_floor)
    attempts = _with_training_tasks(store, attempts, rules)
    return _with_call_figures(store, attempts, rules.references).sort("task_id", "started_at", "episode_id")


def _joined(runs: pl.DataFrame, episodes: pl.DataFrame) -> pl.DataFrame:
    """Join the task runner's attempts with their episodes; either may be without the other."""
    name = pl.concat_str("run_id", "task_id", "attempt", separator="/")
    has_attempt = pl.col("episode_key").is_in(runs["episode_key"].filter(runs["episode_key"] != "").implode())
    attempts = runs.with_columns(
        latency_s=pl.col("duration_ms") / 1e3, started_at=pl.col("started_at").cast(episodes.schema["started_at"])
    ).join(
        episodes.filter(has_attempt)
        .sort("started_at")
        .unique("episode_key", keep="first", maintain_order=True)
        .drop("task_id", "started_at", "duration_ns")
        .rename({"reward": "episode_reward"}),
        on="episode_key",
        how="left",
    )
    others = episodes.filter(~has_attempt).with_columns(latency_s=pl.col("duration_ns") / 1e9)
    return pl.concat(
        [
            attempts.with_columns(pl.col("episode_id").fill_null(name), is_run=True).drop("duration_ms"),
            others.rename({"reward": "episode_reward"}).with_columns(is_run=False).drop("duration_ns"),
        ],
        how="diagonal_relaxed",
    ).with_columns(
        pl.col("run_id", "task_digest", "error_class", "converter_version").fill_null(""),
        pl.col("attempt", "revision").fill_null(0),
        pl.col("error_classes", "policy_versions").fill_null([]),
    )


def _classified(joined: pl.DataFrame, model: str, reward_floor: float) -> pl.DataFrame:
    has_outcome = pl.col("episode_reward").is_not_null() & pl.col("outcome").is_in(["success", "failure"])
    state = (
        pl.when(pl.col("state").is_in(_ENDED_BADLY))
        .then("state")
        .when(pl.col("is_success").is_not_null() | has_outcome)
        .then(pl.lit(EvaluatedState.SCORED.value))
        .when(pl.col("is_run") | pl.col("is_terminated"))
        .then(pl.lit(EvaluatedState.UNSCORED.value))
        .otherwise(pl.lit(EvaluatedState.INCOMPLETE.value))
    )
    is_scored = pl.col("state") == EvaluatedState.SCORED.value
    has_other_versions = pl.col("policy_versions").list.set_difference([model]).list.len() > 0
    return joined.with_columns(state=state).with_columns(
        is_success=is_scored & pl.coalesce("is_success", pl.col("outcome") == "success"),
        reward=pl.when(is_scored).then(pl.coalesce("reward", "episode_reward")).otherwise(reward_floor),
        left_out=pl.when(has_other_versions).then(pl.lit(LeftOut.OTHER_VERSION.value)).otherwise(pl.lit("")),
    )


def _with_training_tasks(store: Store, attempts: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    trained = trained_task_ids(store, attempts, rules.trained)
    is_trained = pl.col("task_id").is_in(list(trained))
    is_refused = is_trained & (pl.col("left_out") == "") & (not rules.allows_training_tasks)
    return attempts.with_columns(
        is_training_task=is_trained,
        left_out=pl.when(is_refused).then(pl.lit(LeftOut.TRAINING_TASK.value)).otherwise("left_out"),
    )


def _with_call_figures(store: Store, attempts: pl.DataFrame, references: ReferenceCalls) -> pl.DataFrame:
    wanted = attempts.filter(pl.col("task_id").is_in(list(references)))
    calls: dict[str, list[str]] = {}
    with_calls = wanted.filter(pl.col("revision") > 0)
    for page in with_calls.iter_slices(_PAGE):
        pinned = {"episode_ids": page["episode_id"].to_list(), "revisions": page["revision"].to_list()}
        for row in store.query("tasks_episodes", **pinned).iter_rows(named=True):
            calls[row["episode_id"]] = row["calls"]
    figures = [
        (
            row["episode_id"],
            *(
                compare_calls(
                    parse_calls(calls.get(row["episode_id"], ())),
                    references[row["task_id"]],
                    is_success=bool(row["is_success"]),
                )
                if row["state"] == EvaluatedState.SCORED.value
                else NO_CALLS
            ),
        )
        for row in wanted.iter_rows(named=True)
    ]
    names = ("tool_selection", "plan_success", "step_efficiency")
    schema = pl.Schema({"episode_id": pl.String(), **dict.fromkeys(names, pl.Float64())})
    return attempts.join(pl.DataFrame(figures, schema=schema, orient="row"), on="episode_id", how="left")
