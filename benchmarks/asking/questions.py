"""Twenty questions, each put to the client, to the MCP server's tools, and to the tables in plain SQL.

The SQL reads the base tables (``episodes``, ``failures``, ``transition_rows``, ``scores``, ``otel_traces``), never the
summaries that the client reads, and shares no code with it.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from spanloop.client import Client
from spanloop.store.client import Connection

if TYPE_CHECKING:
    import polars as pl

Rows: TypeAlias = list[tuple[object, ...]]
Filters: TypeAlias = dict[str, str]


class World(NamedTuple):
    """What the questions name in the store of `fill_to_ask`."""

    start_s: int
    end_s: int
    word: str
    episode_id: str
    seconds: str
    """That a failure's message names."""
    task: str = "train-7"
    session: str = "session-3"

    @property
    def time(self) -> str:
        """The range of time as a filter."""
        start, end = (datetime.fromtimestamp(moment, UTC).isoformat() for moment in (self.start_s, self.end_s))
        return f"{start}..{end}"


class Question(NamedTuple):
    """One question."""

    text: str
    tool: str
    """The MCP server's tool, and the question's method of the client."""
    filters: Callable[[World], Filters]
    columns: tuple[str, ...]
    """Of the answer, in the order of the SQL's columns; empty for a count."""
    sql: str
    arguments: Mapping[str, Any] = {}
    """Further arguments of the tool."""


_EPISODES: Final = "(SELECT * FROM episodes FINAL WHERE is_deleted = 0)"
_FAILURES: Final = (
    "(SELECT f.* FROM (SELECT * FROM failures FINAL) AS f JOIN (SELECT episode_id, revision, service_name, agent_name "
    f"AS agent, session_id FROM {_EPISODES}) AS e ON e.episode_id = f.episode_id AND e.revision = f.revision)"
)
_STEPS: Final = (
    "(SELECT t.* FROM (SELECT episode_id, revision, step, task_id, policy_version, tool_error_count, started_at "
    f"FROM transition_rows FINAL) AS t JOIN (SELECT episode_id, revision FROM {_EPISODES}) AS e "
    "ON e.episode_id = t.episode_id AND e.revision = t.revision)"
)
_SCORES: Final = "(SELECT * FROM scores FINAL WHERE is_deleted = 0)"
_NEWEST: Final = "ORDER BY started_at DESC, episode_id DESC LIMIT 20"
_IN_TIME: Final = "started_at >= toDateTime({start_s:Int64}) AND started_at < toDateTime({end_s:Int64})"
_SUCCESS: Final = (
    "count(), countIf(outcome = 'success'), countIf(outcome = 'success') / countIf(outcome != 'unknown'), avg(reward)"
)


def _no_filter(_: World) -> Filters:
    return {}


QUESTIONS: Final = (
    Question(
        "How many episodes of agent-1 failed?",
        "count",
        lambda _: {"outcome": "failure", "agent": "agent-1"},
        (),
        f"SELECT count() FROM {_EPISODES} WHERE outcome = 'failure' AND agent_name = 'agent-1'",
        {"of": "episodes"},
    ),
    Question(
        "Which failed episodes of service-2 are the newest?",
        "find_episodes",
        lambda _: {"outcome": "failure", "service": "service-2"},
        ("episode_id", "revision", "reward", "task_id"),
        f"SELECT episode_id, revision, reward, task_id FROM {_EPISODES} WHERE outcome = 'failure' "
        f"AND service_name = 'service-2' {_NEWEST}",
    ),
    Question(
        "Which episodes of one version come first by task?",
        "find_episodes",
        lambda _: {"policy": "m@v1"},
        ("task_id", "episode_id", "outcome"),
        f"SELECT task_id, episode_id, outcome FROM {_EPISODES} WHERE policy_version = 'm@v1' "
        "ORDER BY task_id, episode_id LIMIT 20",
        {"sort": "task"},
    ),
    Question(
        "How many episodes of a range of time had a reward of at least 0.5?",
        "count",
        lambda world: {"reward": "0.5..", "time": world.time},
        (),
        f"SELECT count() FROM {_EPISODES} WHERE reward >= 0.5 AND {_IN_TIME}",
        {"of": "episodes"},
    ),
    Question(
        "Which episodes attempted one task?",
        "find_episodes",
        lambda world: {"task": world.task},
        ("episode_id", "agent", "tokens", "step_count"),
        "SELECT episode_id, agent_name, input_tokens + output_tokens, step_count FROM "
        f"{_EPISODES} WHERE task_id = {{task:String}} {_NEWEST}",
    ),
    Question(
        "How many episodes have a word in a message?",
        "count",
        lambda world: {"q": world.word},
        (),
        f"SELECT count() FROM {_EPISODES} WHERE (episode_id, revision) IN (SELECT episode_id, revision "
        "FROM episode_messages WHERE has(splitByNonAlpha(lower(message)), {word:String}))",
        {"of": "episodes"},
    ),
    Question(
        "Which episodes belong to one session?",
        "find_episodes",
        lambda world: {"session": world.session},
        ("episode_id", "outcome"),
        f"SELECT episode_id, outcome FROM {_EPISODES} WHERE session_id = {{session:String}} {_NEWEST}",
    ),
    Question(
        "Which failures of one class are the newest?",
        "find_failures",
        lambda _: {"class": "class_4"},
        ("failure_id", "episode_id", "tool_name", "fault_owner"),
        f"SELECT failure_id, episode_id, tool_name, fault_owner FROM {_FAILURES} WHERE error_class = 'class_4' "
        "ORDER BY occurred_at DESC, failure_id DESC LIMIT 20",
    ),
    Question(
        "How many failures say that something timed out after some seconds?",
        "count",
        lambda world: {"error": f"timed out after {world.seconds}"},
        (),
        f"SELECT count() FROM {_FAILURES} WHERE message LIKE concat('%timed out after ', {{seconds:String}}, ' s')",
        {"of": "failures"},
    ),
    Question(
        "Which failures are the most frequent?",
        "failure_groups",
        _no_filter,
        ("fingerprint", "failures", "episodes", "recovered", "fault_owner", "error_class"),
        "SELECT fingerprint, count(), uniqExact(episode_id), countIf(is_recovered), any(fault_owner), any(error_class) "
        f"FROM {_FAILURES} GROUP BY fingerprint ORDER BY count() DESC, max(occurred_at) DESC, fingerprint LIMIT 20",
    ),
    Question(
        "Which failures of a range of time does the policy own?",
        "failure_groups",
        lambda world: {"owner": "policy", "time": world.time},
        ("fingerprint", "failures", "episodes"),
        f"SELECT fingerprint, count(), uniqExact(episode_id) FROM {_FAILURES} WHERE fault_owner = 'policy' "
        f"AND {_IN_TIME.replace('started_at', 'occurred_at')} "
        "GROUP BY fingerprint ORDER BY count() DESC, max(occurred_at) DESC, fingerprint LIMIT 20",
    ),
    Question(
        "How often does each tool fail, and by whose fault?",
        "failing_tools",
        _no_filter,
        ("tool", "failures", "policy_failures", "tool_failures"),
        "SELECT tool_name, count() AS n, countIf(fault_owner = 'policy'), countIf(fault_owner = 'tool') "
        f"FROM {_FAILURES} GROUP BY tool_name ORDER BY n DESC, tool_name = 'tool_1' DESC, tool_name LIMIT 20",
    ),
    Question(
        "How does each version do?",
        "success_by",
        _no_filter,
        ("policy", "episodes", "successes", "success", "reward"),
        f"SELECT policy_version, {_SUCCESS} FROM {_EPISODES} GROUP BY policy_version "
        "ORDER BY count() DESC, policy_version LIMIT 20",
    ),
    Question(
        "How did each agent do in a range of time?",
        "success_by",
        lambda world: {"time": world.time},
        ("agent", "episodes", "successes", "success", "reward"),
        f"SELECT agent_name, {_SUCCESS} FROM {_EPISODES} WHERE {_IN_TIME} GROUP BY agent_name "
        "ORDER BY count() DESC, agent_name LIMIT 20",
        {"by": "agent"},
    ),
    Question(
        "How many steps of one version had a failed tool call?",
        "count",
        lambda _: {"errors": "1..", "policy": "m@v1"},
        (),
        f"SELECT count() FROM {_STEPS} WHERE tool_error_count >= 1 AND policy_version = 'm@v1'",
        {"of": "steps"},
    ),
    Question(
        "Which steps of one task are the newest?",
        "find_steps",
        lambda world: {"task": world.task},
        ("episode_id", "step"),
        f"SELECT episode_id, step FROM {_STEPS} WHERE task_id = {{task:String}} "
        "ORDER BY started_at DESC, concat(episode_id, '/', toString(step)) DESC LIMIT 20",
    ),
    Question(
        "What scores are there, and how high are they?",
        "score_summary",
        _no_filter,
        ("name", "scores", "mean", "low", "high"),
        f"SELECT name, count(), avg(value), min(value), max(value) FROM {_SCORES} GROUP BY name "
        "ORDER BY count() DESC, name",
    ),
    Question(
        "What did users score in episodes of one service?",
        "find_scores",
        lambda _: {"service": "service-1"},
        ("score_id", "value", "comment"),
        f"SELECT score_id, value, comment FROM {_SCORES} WHERE name = 'helpful' AND trace_id IN ("
        f"SELECT arrayJoin(trace_ids) FROM {_EPISODES} WHERE service_name = 'service-1') "
        "ORDER BY scored_at DESC, score_id LIMIT 20",
        {"names": ["helpful"]},
    ),
    Question(
        "Which traces of one agent are the newest?",
        "find_traces",
        lambda _: {"agent": "agent-3"},
        ("trace_id", "span_count", "model_calls"),
        "SELECT TraceId, count(), countIf(SpanAttributes['gen_ai.operation.name'] = 'chat') FROM otel_traces "
        "WHERE SpanAttributes['gen_ai.agent.name'] = 'agent-3' GROUP BY TraceId "
        "ORDER BY min(Timestamp) DESC, TraceId DESC LIMIT 20",
    ),
    Question(
        "What happened in one episode?",
        "read_episode",
        _no_filter,
        ("episode_id", "outcome", "reward", "step_count", "policy_version"),
        "SELECT episode_id, outcome, reward, step_count, policy_version FROM "
        f"{_EPISODES} WHERE episode_id = {{episode_id:String}}",
    ),
)
_LISTS: Final = {
    "find_episodes": "episodes",
    "find_steps": "steps",
    "find_failures": "failures",
    "find_traces": "traces",
}


def ask_client(client: Client, question: Question, world: World) -> Rows:
    """Return the client's answer."""
    filters, arguments = question.filters(world), dict(question.arguments)
    if question.tool == "count":
        return [(client.count(arguments["of"], filters),)]
    if question.tool == "read_episode":
        episode = client.episode(world.episode_id)
        return [_normal(getattr(episode, name) for name in question.columns)]
    if question.tool in _LISTS:
        frame: pl.DataFrame = getattr(client, _LISTS[question.tool])(filters, limit=20, **arguments)
    elif question.tool == "success_by":
        frame = client.outcomes(arguments.get("by", "policy"), filters).head(20)
    elif question.tool == "find_scores":
        frame = client.scores(filters, limit=20, **arguments)
    else:
        methods = {"failure_groups": client.failure_groups, "failing_tools": client.tools}
        frame = methods.get(question.tool, client.score_summary)(filters).head(20)
    return [_normal(row) for row in frame.select(question.columns).iter_rows()]


def tool_arguments(question: Question, world: World) -> dict[str, Any]:
    """Return the arguments of the question's tool."""
    if question.tool == "read_episode":
        return {"episode_id": world.episode_id}
    arguments = {"filters": question.filters(world), **question.arguments}
    return arguments if question.tool == "count" else {**arguments, "limit": 20}


def parse_reply(question: Question, text: str) -> Rows:
    """Return the answer that a tool's reply states."""
    if question.tool == "count":
        return [(int(text.split(maxsplit=1)[0]),)]
    match = re.search(r"<(stored-data-[0-9a-f]+)>\n(.*)\n</\1>", text, re.DOTALL)
    lines = [] if match is None else match[2].splitlines()
    rows = [json.loads(line) for line in (lines[:1] if question.tool == "read_episode" else lines)]
    return [_normal(row.get(name) for name in question.columns) for row in rows]


def ask_tables(connection: Connection, question: Question, world: World) -> Rows:
    """Return the answer of the plain SQL."""
    values = {**world._asdict()}
    named = {name: value for name, value in values.items() if f"{{{name}:" in question.sql}
    frame = connection.query(question.sql, doing=question.text, parameters=named)
    return [_normal(row) for row in frame.iter_rows()]


def _normal(row: Iterable[object]) -> tuple[object, ...]:
    """Return values as they compare: a reply leaves out what is empty, and writes numbers in JSON."""
    values: list[object] = []
    for value in row:
        if isinstance(value, float):
            values.append(None if math.isnan(value) else round(value, 9) + 0.0)
        else:
            values.append(value or None if isinstance(value, str) else value)
    return tuple(values)
