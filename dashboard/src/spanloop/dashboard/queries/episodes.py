"""What the pages read, as frozen values and frames: one function for each named query.

Invariant: no list reads a message, attribute or token column; those are read for one episode, one span or one
window of one row at a time.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from spanloop.dashboard.view_models.conversation import StepRecord
from spanloop.dashboard.view_models.span_tree import Span
from spanloop.dashboard.view_models.token_cells import TokenWindow
from spanloop.store import Store

MAX_SPANS: Final = 600
"""Spans of one episode that a page draws."""

_SLACK_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class Totals:
    """What the store holds since a moment."""

    episodes: int
    successes: int
    failures: int
    steps: int
    tool_calls: int
    tool_errors: int
    input_tokens: int
    output_tokens: int
    mean_reward: float | None
    spans: int
    last_ingested_at: datetime | None
    """Over all spans, whatever the moment; None when there is none."""
    transitions: int
    trainable_transitions: int


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Empty strings match everything."""

    outcome: str = ""
    policy_version: str = ""
    agent_name: str = ""
    text: str = ""
    """Part of an episode id, task id, session id or the app's episode id, in any case."""
    with_tool_errors: bool = False


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode's head."""

    episode_id: str
    revision: int
    is_deleted: bool
    converter_version: str
    episode_key: str
    task_id: str
    group_id: str
    session_id: str
    service_name: str
    agent_name: str
    model: str
    policy_version: str
    trace_ids: tuple[str, ...]
    started_at: datetime
    duration_ns: int
    step_count: int
    span_count: int
    tool_call_count: int
    tool_error_count: int
    input_tokens: int
    output_tokens: int
    outcome: str
    reward: float | None
    reward_breakdown: dict[str, float]
    is_terminated: bool
    is_truncated: bool
    error_class: str
    fault_owner: str


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of an episode, with its tokens."""

    policy_version: str
    response_id: str
    finish_reason: str
    reward: float | None
    sampling: dict[str, str]
    """Temperature and the like, as sent."""
    is_trainable: bool
    untrainable_reason: str
    untrainable_detail: str
    window: TokenWindow
    """Its prompt's end and its response; every response token was sampled."""


@dataclass(frozen=True, slots=True)
class SpanDetail:
    """Everything that one span carries."""

    name: str
    service_name: str
    scope_name: str
    status: str
    status_message: str
    attributes: dict[str, str]
    resource: dict[str, str]
    events: tuple[tuple[str, dict[str, str]], ...]
    """Name and attributes of each event."""


def totals(store: Store, since_s: int) -> Totals:
    """Counts since a moment, in seconds since the epoch."""
    row = store.query("dashboard_totals", since_s=since_s).row(0, named=True)
    if not row["spans"] and row["last_ingested_at"] is not None and row["last_ingested_at"].timestamp() == 0:
        row["last_ingested_at"] = None
    mean = row.pop("mean_reward")
    return Totals(**row, mean_reward=_finite(mean))


def outcomes_over_time(store: Store, since_s: int, bucket_s: int) -> pl.DataFrame:
    """Columns ``bucket``, ``episodes``, ``successes``, ``failures``, ``mean_reward`` and tokens, oldest first."""
    return store.query("dashboard_outcomes_over_time", since_s=since_s, bucket_s=bucket_s)


def latest_failures(store: Store, since_s: int, *, fingerprint: str = "", max_rows: int = 8) -> pl.DataFrame:
    """The newest failures, of one fingerprint when given."""
    return store.query("dashboard_latest_failures", since_s=since_s, fingerprint=fingerprint, max_rows=max_rows)


def failure_groups(
    store: Store, since_s: int, *, fault_owner: str = "", task_prefix: str = "", max_rows: int = 200
) -> pl.DataFrame:
    """Failures grouped by fingerprint, most frequent first."""
    return store.query(
        "dashboard_failure_groups",
        since_s=since_s,
        fault_owner=fault_owner,
        task_prefix=task_prefix,
        max_rows=max_rows,
    )


def episodes(store: Store, since_s: int, chosen: EpisodeFilter, *, max_rows: int, skip_rows: int) -> pl.DataFrame:
    """The newest episodes that match, without any message."""
    return store.query(
        "dashboard_episodes",
        since_s=since_s,
        outcome=chosen.outcome,
        policy_version=chosen.policy_version,
        agent_name=chosen.agent_name,
        with_tool_errors=int(chosen.with_tool_errors),
        text=chosen.text,
        max_rows=max_rows,
        skip_rows=skip_rows,
    )


def episode_facets(store: Store) -> dict[str, list[str]]:
    """The values of the filters ``policy_version`` and ``agent_name``, most frequent first."""
    facets: dict[str, list[str]] = {"policy_version": [], "agent_name": []}
    for facet, value, _ in store.query("dashboard_episode_facets").iter_rows():
        facets[facet].append(value)
    return facets


def episode(store: Store, episode_id: str) -> Episode | None:
    """One episode, a tombstone included; None when the store has never seen it."""
    frame = store.query("dashboard_episode", episode_id=episode_id)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    row["is_deleted"] = bool(row["is_deleted"])
    row["trace_ids"] = tuple(row["trace_ids"])
    row["reward_breakdown"] = cast("dict[str, float]", json.loads(row["reward_breakdown"]))
    return Episode(**row)


def spans(store: Store, head: Episode) -> list[Span]:
    """Up to ``MAX_SPANS`` spans of an episode's traces, in order of start."""
    start_s = int(head.started_at.timestamp())
    frame = store.query(
        "dashboard_spans",
        trace_ids=list(head.trace_ids),
        episode_key=head.episode_key,
        from_s=max(0, start_s - _SLACK_S),
        until_s=start_s + head.duration_ns // 1_000_000_000 + _SLACK_S,
        max_rows=MAX_SPANS,
    )
    return [Span(**row) for row in frame.iter_rows(named=True)]


def span(store: Store, picked: Span) -> SpanDetail | None:
    """One span with its attributes."""
    frame = store.query("dashboard_span", trace_id=picked.trace_id, span_id=picked.span_id, start_ns=picked.start_ns)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    events = cast("list[dict[str, str]]", json.loads(row.pop("events")))
    return SpanDetail(
        name=row["name"],
        service_name=row["service_name"],
        scope_name=row["scope_name"],
        status=row["status"],
        status_message=row["status_message"],
        attributes=_attributes(row["attributes"]),
        resource=_attributes(row["resource"]),
        events=tuple((event["event"], _attributes(event["attributes"])) for event in events),
    )


def transitions(store: Store, head: Episode) -> pl.DataFrame:
    """The transitions of an episode's current revision, without messages and tokens."""
    return store.query("dashboard_transitions", episode_id=head.episode_id, revision=head.revision)


def transition(store: Store, head: Episode, step: int, *, max_tokens: int, prompt_tail: int) -> Transition | None:
    """One step with its response's first ``max_tokens`` tokens and its prompt's last ``prompt_tail``."""
    frame = store.query(
        "dashboard_transition",
        episode_id=head.episode_id,
        revision=head.revision,
        step=step,
        max_tokens=max_tokens,
        prompt_tail=prompt_tail,
    )
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    return Transition(
        policy_version=row["policy_version"],
        response_id=row["response_id"],
        finish_reason=row["finish_reason"],
        reward=row["reward"],
        sampling=_attributes(row["sampling"]),
        is_trainable=row["is_trainable"],
        untrainable_reason=row["untrainable_reason"],
        untrainable_detail=row["untrainable_detail"],
        window=TokenWindow(
            prompt_tokens=row["prompt_tokens"],
            response_tokens=row["response_tokens"],
            first_token=0,
            prompt_tail=tuple(row["prompt_tail"]),
            response=tuple(row["response"]),
            loss_mask=(1,) * len(row["response"]),
            logprobs=tuple(row["logprobs"]),
        ),
    )


def step_records(store: Store, head: Episode, first_step: int, last_step: int) -> list[StepRecord]:
    """Messages of the steps from ``first_step`` to ``last_step``, both included."""
    frame = store.query(
        "dashboard_messages",
        episode_id=head.episode_id,
        revision=head.revision,
        first_step=first_step,
        last_step=last_step,
    )
    names = ("step", "agent_name", "state", "action", "tool_results")
    return [StepRecord(*row) for row in frame.select(names).iter_rows()]


def trajectories(store: Store, head: Episode) -> pl.DataFrame:
    """The token rows of an episode's current revision, without their tokens."""
    return store.query("dashboard_trajectories", episode_id=head.episode_id, revision=head.revision)


def token_window(
    store: Store, head: Episode, row_number: int, *, first_token: int, max_tokens: int, prompt_tail: int
) -> TokenWindow | None:
    """``max_tokens`` tokens of one row's response from ``first_token`` on, and the prompt's last ``prompt_tail``."""
    frame = store.query(
        "dashboard_trajectory_tokens",
        episode_id=head.episode_id,
        revision=head.revision,
        row_number=row_number,
        first_token=first_token,
        max_tokens=max_tokens,
        prompt_tail=prompt_tail,
    )
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    return TokenWindow(
        prompt_tokens=row["prompt_tokens"],
        response_tokens=row["response_tokens"],
        first_token=first_token,
        prompt_tail=tuple(row["prompt_tail"]),
        response=tuple(row["response"]),
        loss_mask=tuple(row["loss_mask"]),
        logprobs=tuple(row["logprobs"]),
    )


def episode_failures(store: Store, head: Episode) -> pl.DataFrame:
    """The failures of an episode's current revision."""
    return store.query("dashboard_episode_failures", episode_id=head.episode_id, revision=head.revision)


def episode_scores(store: Store, head: Episode) -> pl.DataFrame:
    """The scores that were sent for an episode."""
    return store.query("dashboard_episode_scores", trace_ids=list(head.trace_ids), episode_key=head.episode_key)


def metric_jobs(store: Store, max_rows: int = 50) -> pl.DataFrame:
    """The jobs that recorded metrics, newest first."""
    return store.query("dashboard_metric_jobs", max_rows=max_rows)


def metric_names(store: Store, job_ids: list[str]) -> list[str]:
    """The names of the metrics that the jobs recorded."""
    return cast("list[str]", store.query("dashboard_metric_names", job_ids=job_ids)["name"].to_list())


def metrics(store: Store, job_ids: list[str], names: list[str]) -> pl.DataFrame:
    """Columns ``job_id``, ``step``, ``name``, ``value``."""
    return store.query("dashboard_metrics", job_ids=job_ids, names=names)


def _attributes(text: str) -> dict[str, str]:
    loaded: Any = json.loads(text)
    return {str(key): str(value) for key, value in cast("dict[str, Any]", loaded).items()}


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value else value  # noqa: PLR0124 - NaN is what avg() of nothing gives
