"""The calls between agents and tools, in the newest episodes that match.

Invariant: every call counted is one of `MAX_EPISODES` episodes, so that a figure of the graph has exactly the episodes
that its list names.
"""

from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.dashboard.queries.conditions import (
    AGENT,
    REVISION,
    Conditions,
    episode_conditions,
    parse_words,
)
from spanloop.dashboard.view_models.agent_graph import EpisodeSteps, SpanKey, Step
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

MAX_EPISODES: Final = 1_000
_MAX_SPANS: Final = 200_000
_BEFORE_S: Final = 3_600
"""No step starts before the first span of its episode; so much is allowed for clocks that differ."""
_BEHIND_S: Final = 86_400
"""Longest distance of a step or a failure from the end of its episode."""


class Calls(NamedTuple):
    """The steps of some episodes, and how their spans lie in each other."""

    episodes: pl.DataFrame
    """Newest first: ``episode_id``, ``started_at``, ``outcome``, ``task_id``, ``agent``, ``trace_id`` (of the first
    trace), ``duration_ns``."""
    steps: list[EpisodeSteps]
    parents: dict[SpanKey, SpanKey]
    """Span → its parent, in the traces of episodes with several agents."""


def fetch_calls(store: Store, filters: Filters) -> Calls:
    """Return the steps of the newest matching episodes, their failures, and how their spans lie in each other."""
    conditions = episode_conditions(filters, parse_words(filters))
    episodes = _query(
        store,
        f"SELECT episode_id, {REVISION} AS of, started_at, toString(outcome) AS outcome, task_id, toString({AGENT}) AS "
        "agent, trace_ids[1] AS trace_id, duration_ns FROM episode_summaries FINAL "
        f"WHERE {conditions.sql} ORDER BY started_at DESC, episode_id LIMIT {MAX_EPISODES}",
        conditions,
    )
    if episodes.is_empty():
        return Calls(episodes, [], {})
    steps = _query(
        store,
        "SELECT episode_id, step, toString(agent_name) AS agent_name, trace_id, span_id, started_at, "
        "called_tools AS tools, "
        "error_class != '' AS is_failed FROM step_summaries FINAL WHERE {within} ORDER BY started_at, step",
        _within(episodes, "started_at"),
    )
    failures = _query(
        store,
        "SELECT episode_id, step, toString(tool_name) AS tool_name, count() AS failures FROM failure_summaries FINAL "
        "WHERE {within} GROUP BY episode_id, step, tool_name",
        _within(episodes, "occurred_at"),
    )
    grouped = _grouped(episodes, steps, failures)
    return Calls(episodes.drop("of"), grouped, _fetch_parents(store, grouped, steps))


def _within(episodes: pl.DataFrame, column: str) -> Conditions:
    """Return that a row is of one of the episodes; the range of time of these is read only."""
    conditions = Conditions()
    first, last = (int(episodes["started_at"].dt.epoch("s")[at]) for at in (-1, 0))
    lasting_s = max(episodes["duration_ns"].to_list()) // 1_000_000_000
    start, end = first - _BEFORE_S, last + lasting_s + _BEHIND_S
    conditions.add(f"{column} >= toDateTime64({conditions.bind(start, 'Int64')}, 9, 'UTC')")
    conditions.add(f"{column} < toDateTime64({conditions.bind(end, 'Int64')}, 9, 'UTC')")
    conditions.add(f"{REVISION} IN {conditions.bind(episodes['of'].to_list(), 'Array(UInt64)')}")
    return conditions


def _grouped(episodes: pl.DataFrame, steps: pl.DataFrame, failures: pl.DataFrame) -> list[EpisodeSteps]:
    failed: dict[tuple[str, int], dict[str, int]] = {}
    for episode_id, step, tool, count in failures.iter_rows():
        failed.setdefault((episode_id, step), {})[tool] = count
    agents = dict(episodes.select("episode_id", "agent").iter_rows())
    grouped: dict[str, list[Step]] = {episode_id: [] for episode_id in agents}
    columns = ("episode_id", "step", "agent_name", "trace_id", "span_id", "tools", "is_failed")
    for episode_id, step, agent, trace_id, span_id, tools, is_failed in steps.select(columns).iter_rows():
        of_step = failed.get((episode_id, step), {})
        grouped[episode_id].append(
            Step(agent or agents[episode_id], (trace_id, span_id), tuple(tools), of_step, bool(is_failed or of_step))
        )
    return [EpisodeSteps(episode_id, tuple(each)) for episode_id, each in grouped.items() if each]


def _fetch_parents(store: Store, episodes: list[EpisodeSteps], steps: pl.DataFrame) -> dict[SpanKey, SpanKey]:
    teams = [each for each in episodes if len({step.agent for step in each.steps}) > 1]
    traces = sorted({step.span[0] for each in teams for step in each.steps if step.span[0]})
    if not traces:
        return {}
    of_teams = steps.filter(pl.col("trace_id").is_in(traces))["started_at"].dt.epoch("s")
    first: Any = of_teams.min()
    last: Any = of_teams.max()
    spans = Conditions()
    spans.add(f"Timestamp >= toDateTime64({spans.bind(int(first) - 3_600, 'Int64')}, 9, 'UTC')")
    spans.add(f"Timestamp < toDateTime64({spans.bind(int(last) + 60, 'Int64')}, 9, 'UTC')")
    spans.add(f"TraceId IN {spans.bind(traces, 'Array(String)')}")
    frame = _query(
        store,
        "SELECT TraceId, SpanId, ParentSpanId FROM otel_traces WHERE {within} AND ParentSpanId != '' "
        f"ORDER BY Timestamp DESC LIMIT {_MAX_SPANS}",
        spans,
    )
    return {(trace, span): (trace, parent) for trace, span, parent in frame.iter_rows()}


def _query(store: Store, sql: str, conditions: Conditions) -> pl.DataFrame:
    return store.connection.query(
        sql.replace("{within}", conditions.sql), doing="reading calls of agents", parameters=conditions.parameters
    )
