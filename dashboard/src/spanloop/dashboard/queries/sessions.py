"""One session: its traces are the turns of a conversation.

Invariant: turns are in the order in which their traces started. A turn whose trace is not converted yet has no message.
"""

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
    steps: dict[str, Turn] = {}
    for trace_id, episode_id, revision in fetch_trace_episodes(store, turns).iter_rows():
        agents = store.query("dashboard_turn_steps", episode_id=episode_id, revision=revision, trace_id=trace_id)
        if agents.is_empty():
            continue
        first_agent = agents.row(0, named=True)
        first, last = (
            _records(store, episode_id, revision, trace_id, range(first_agent[name], first_agent[name] + 1))[0]
            for name in ("first_step", "last_step")
        )
        steps[trace_id] = Turn(
            trace_id,
            episode_id,
            first_agent["agent_name"],
            first,
            last,
            max(agents["last_step"].to_list()),
            int(agents["steps"].sum()),
            revision,
            tuple(name for name in agents["agent_name"].to_list()[1:] if name),
            int(agents["tool_errors"].sum()),
        )
    return steps


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
