"""Episodes and what belongs to them: messages, spans, transitions, token rows, failures and scores.

Invariant: lists never read message, attribute or token columns. Those are read for one episode, one span or one
window of tokens at a time.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import polars as pl

from spanloop.dashboard.queries.traces import MAX_SPANS, parse_attributes
from spanloop.dashboard.view_models.conversation import StepRecord
from spanloop.dashboard.view_models.span_tree import Span
from spanloop.dashboard.view_models.token_cells import TokenWindow
from spanloop.store import Store

_SPAN_MARGIN_S: Final = 3_600
"""How far spans of an episode's traces may lie outside the episode's own time."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode, without its messages and tokens."""

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
    marks: tuple[str, ...]
    judgements: tuple[str, ...]
    """Ids of the judgements of people that the revision counts."""


@dataclass(frozen=True, slots=True)
class TransitionDetail:
    """One step of an episode, with its tokens."""

    policy_version: str
    response_id: str
    finish_reason: str
    reward: float | None
    sampling: dict[str, str]
    """Sampling parameters of the request, such as temperature."""
    is_trainable: bool
    untrainable_reason: str
    untrainable_detail: str
    window: TokenWindow
    """The end of the prompt and the response; every response token was sampled."""


def fetch_episode(store: Store, episode_id: str) -> Episode | None:
    """Return one episode, also a deleted one; None when the store does not know the id."""
    frame = store.query("dashboard_episode", episode_id=episode_id)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    row["is_deleted"] = bool(row["is_deleted"])
    row["trace_ids"] = tuple(row["trace_ids"])
    row["marks"] = tuple(row["marks"])
    row["judgements"] = tuple(row["judgements"])
    row["reward_breakdown"] = cast("dict[str, float]", json.loads(row["reward_breakdown"]))
    return Episode(**row)


def fetch_episode_spans(store: Store, episode: Episode) -> list[Span]:
    """Return up to ``MAX_SPANS`` spans of an episode's traces, ordered by start."""
    start_s = int(episode.started_at.timestamp())
    frame = store.query(
        "dashboard_spans",
        trace_ids=list(episode.trace_ids),
        episode_key=episode.episode_key,
        from_s=max(0, start_s - _SPAN_MARGIN_S),
        until_s=start_s + episode.duration_ns // 1_000_000_000 + _SPAN_MARGIN_S,
        max_rows=MAX_SPANS,
    )
    return [Span(**row) for row in frame.iter_rows(named=True)]


def fetch_transitions(store: Store, episode: Episode) -> pl.DataFrame:
    """Return the transitions of an episode's current revision, without messages and tokens."""
    return store.query("dashboard_transitions", episode_id=episode.episode_id, revision=episode.revision)


def fetch_transition(
    store: Store, episode: Episode, step: int, *, max_tokens: int, prompt_tail: int
) -> TransitionDetail | None:
    """Return one step with the first ``max_tokens`` response tokens and the last ``prompt_tail`` prompt tokens."""
    frame = store.query(
        "dashboard_transition",
        episode_id=episode.episode_id,
        revision=episode.revision,
        step=step,
        max_tokens=max_tokens,
        prompt_tail=prompt_tail,
    )
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    return TransitionDetail(
        policy_version=row["policy_version"],
        response_id=row["response_id"],
        finish_reason=row["finish_reason"],
        reward=row["reward"],
        sampling=parse_attributes(row["sampling"]),
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


def fetch_step_records(store: Store, episode: Episode, first_step: int, last_step: int) -> list[StepRecord]:
    """Return the messages of the steps from ``first_step`` to ``last_step``, both included."""
    frame = store.query(
        "dashboard_messages",
        episode_id=episode.episode_id,
        revision=episode.revision,
        first_step=first_step,
        last_step=last_step,
    )
    names = ("step", "agent_name", "state", "action", "tool_results")
    return [StepRecord(*row) for row in frame.select(names).iter_rows()]


def fetch_token_rows(store: Store, episode: Episode) -> pl.DataFrame:
    """Return the token rows of an episode's current revision, without their tokens."""
    return store.query("dashboard_trajectories", episode_id=episode.episode_id, revision=episode.revision)


def fetch_token_window(
    store: Store, episode: Episode, row_number: int, *, first_token: int, max_tokens: int, prompt_tail: int
) -> TokenWindow | None:
    """Return ``max_tokens`` response tokens from ``first_token`` on, and the last ``prompt_tail`` prompt tokens."""
    frame = store.query(
        "dashboard_trajectory_tokens",
        episode_id=episode.episode_id,
        revision=episode.revision,
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
        sampled=tuple(row["sampled"]),
    )


def fetch_episode_failures(store: Store, episode: Episode) -> pl.DataFrame:
    """Return the failures of an episode's current revision."""
    return store.query("dashboard_episode_failures", episode_id=episode.episode_id, revision=episode.revision)


def fetch_episode_scores(store: Store, episode: Episode) -> pl.DataFrame:
    """Return the scores that the app sent for an episode."""
    return store.query("dashboard_episode_scores", trace_ids=list(episode.trace_ids), episode_key=episode.episode_key)
