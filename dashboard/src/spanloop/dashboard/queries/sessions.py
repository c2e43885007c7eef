"""One session: its traces are the turns of a conversation.

Invariant: turns are in the order in which their traces started. A turn whose trace is not converted yet has no message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from spanloop.dashboard.queries.previews import fetch_trace_episodes
from spanloop.dashboard.view_models.conversation import StepRecord
from spanloop.dashboard.view_models.filters import TimeRange
from spanloop.store import Store

MAX_TURNS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Turn:
    """The steps of one turn."""

    trace_id: str
    episode_id: str
    agent_name: str
    """The agent that was asked: that of the first step."""
    first: StepRecord
    last: StepRecord
    """The step with the answer; the first one where the agent took one step."""
    last_step: int
    """The last step of any agent."""
    steps: int
    """Number of steps of all agents."""
    revision: int
    helpers: tuple[str, ...]
    """Names of the other agents."""
    tool_errors: int


def fetch_turns(store: Store, session_id: str, time: TimeRange) -> pl.DataFrame:
    """Return up to ``MAX_TURNS`` traces of a session in the order of start."""
    return store.query(
        "dashboard_session_turns",
        session_id=session_id,
        from_s=max(0, time.start_s - 86_400),
        until_s=min(time.end_s + 86_400, 4_102_444_800),
        max_rows=MAX_TURNS,
    )


def fetch_turn_steps(store: Store, turns: pl.DataFrame) -> dict[str, Turn]:
    """Return the steps of those traces that are converted, by trace id; ``turns`` has rows of `fetch_turns`."""
    converted = fetch_trace_episodes(store, turns)
    if converted.is_empty():
        return {}
    traces, episode_ids, revisions = (converted[name].to_list() for name in converted.columns)
    agents = store.query(
        "dashboard_turn_steps", trace_ids=traces, episode_ids=episode_ids, revisions=revisions
    ).partition_by("trace_id", as_dict=True, maintain_order=True)
    places = {
        (episode_id, revision, agents[trace,][name][0])
        for trace, episode_id, revision in zip(traces, episode_ids, revisions, strict=True)
        for name in ("first_step", "last_step")
        if (trace,) in agents
    }
    records = _fetch_records(store, sorted(places))
    steps: dict[str, Turn] = {}
    for trace_id, episode_id, revision in converted.iter_rows():
        of_trace = agents.get((trace_id,))
        if of_trace is None:
            continue
        first_agent = of_trace.row(0, named=True)
        first, last = (records[trace_id, first_agent[name]] for name in ("first_step", "last_step"))
        steps[trace_id] = Turn(
            trace_id,
            episode_id,
            first_agent["agent_name"],
            first,
            last,
            max(of_trace["last_step"].to_list()),
            int(of_trace["steps"].sum()),
            revision,
            tuple(name for name in of_trace["agent_name"].to_list()[1:] if name),
            int(of_trace["tool_errors"].sum()),
        )
    return steps


def _fetch_records(store: Store, places: Sequence[tuple[str, int, int]]) -> dict[tuple[str, int], StepRecord]:
    """Return the records of single steps, each an episode, its revision and a number, by trace and number."""
    episode_ids, revisions, steps = (list(column) for column in zip(*places, strict=True)) if places else ([], [], [])
    frame = store.query("dashboard_turn_messages", episode_ids=episode_ids, revisions=revisions, steps=steps)
    names = ("step", "agent_name", "state", "action", "tool_results")
    return {
        (trace_id, record[0]): StepRecord(*record) for trace_id, *record in frame.select("trace_id", *names).iter_rows()
    }


def fetch_all_steps(store: Store, turn: Turn) -> list[StepRecord]:
    """Return the steps of a turn, of all its agents."""
    return _records(store, turn.episode_id, turn.revision, turn.trace_id, range(turn.first.step, turn.last_step + 1))


def _records(store: Store, episode_id: str, revision: int, trace_id: str, steps: range) -> list[StepRecord]:
    frame = store.query(
        "dashboard_messages",
        episode_id=episode_id,
        revision=revision,
        first_step=steps.start,
        last_step=steps.stop - 1,
    ).filter(pl.col("trace_id") == trace_id)
    names = ("step", "agent_name", "state", "action", "tool_results")
    return [StepRecord(*row) for row in frame.select(names).iter_rows()]
