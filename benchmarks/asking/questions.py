"""Twenty questions, each put to the client, to the MCP server's tools, and to the tables in plain SQL.

The SQL of ``answers`` was written from the documentation of the tables alone, without sight of the client. It reads the
base tables (``episodes``, ``failures``, ``transition_rows``, ``scores``, ``otel_traces``), never the summaries that the
client reads.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from spanloop.client import Client
from spanloop.store.client import Connection

if TYPE_CHECKING:
    import polars as pl

_ANSWERS: Final = Path(__file__).parent / "answers"
"""The SQL of question n in ``n.sql``, in two digits."""
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
    arguments: Mapping[str, Any] = {}
    """Further arguments of the tool."""


def _no_filter(_: World) -> Filters:
    return {}


QUESTIONS: Final = (
    Question(
        "How many episodes of agent-1 failed?",
        "count",
        lambda _: {"outcome": "failure", "agent": "agent-1"},
        (),
        {"of": "episodes"},
    ),
    Question(
        "Which failed episodes of service-2 are the newest?",
        "find_episodes",
        lambda _: {"outcome": "failure", "service": "service-2"},
        ("episode_id", "revision", "reward", "task_id"),
    ),
    Question(
        "Which episodes of one version come first by task?",
        "find_episodes",
        lambda _: {"policy": "m@v1"},
        ("task_id", "episode_id", "outcome"),
        {"sort": "task"},
    ),
    Question(
        "How many episodes of a range of time had a reward of at least 0.5?",
        "count",
        lambda world: {"reward": "0.5..", "time": world.time},
        (),
        {"of": "episodes"},
    ),
    Question(
        "Which episodes attempted one task?",
        "find_episodes",
        lambda world: {"task": world.task},
        ("episode_id", "agent", "tokens", "step_count"),
    ),
    Question(
        "How many episodes have a word in a message?",
        "count",
        lambda world: {"q": world.word},
        (),
        {"of": "episodes"},
    ),
    Question(
        "Which episodes belong to one session?",
        "find_episodes",
        lambda world: {"session": world.session},
        ("episode_id", "outcome"),
    ),
    Question(
        "Which failures of one class are the newest?",
        "find_failures",
        lambda _: {"class": "class_4"},
        ("failure_id", "episode_id", "tool_name", "fault_owner"),
    ),
    Question(
        "How many failures say that something timed out after some seconds?",
        "count",
        lambda world: {"error": f"timed out after {world.seconds}"},
        (),
        {"of": "failures"},
    ),
    Question(
        "Which failures are the most frequent?",
        "failure_groups",
        _no_filter,
        ("fingerprint", "failures", "episodes", "recovered", "fault_owner", "error_class"),
    ),
    Question(
        "Which failures of a range of time does the policy own?",
        "failure_groups",
        lambda world: {"owner": "policy", "time": world.time},
        ("fingerprint", "failures", "episodes"),
    ),
    Question(
        "How often does each tool fail, and by whose fault?",
        "failing_tools",
        _no_filter,
        ("tool", "failures", "policy_failures", "tool_failures"),
    ),
    Question(
        "How does each version do?",
        "success_by",
        _no_filter,
        ("policy", "episodes", "successes", "success", "reward"),
    ),
    Question(
        "How did each agent do in a range of time?",
        "success_by",
        lambda world: {"time": world.time},
        ("agent", "episodes", "successes", "success", "reward"),
        {"by": "agent"},
    ),
    Question(
        "How many steps of one version had a failed tool call?",
        "count",
        lambda _: {"errors": "1..", "policy": "m@v1"},
        (),
        {"of": "steps"},
    ),
    Question(
        "Which steps of one task are the newest?",
        "find_steps",
        lambda world: {"task": world.task},
        ("episode_id", "step"),
    ),
    Question(
        "What scores are there, and how high are they?",
        "score_summary",
        _no_filter,
        ("name", "scores", "mean", "low", "high"),
    ),
    Question(
        "What did users score in episodes of one service?",
        "find_scores",
        lambda _: {"service": "service-1"},
        ("score_id", "value", "comment"),
        {"names": ["helpful"]},
    ),
    Question(
        "Which traces of one agent are the newest?",
        "find_traces",
        lambda _: {"agent": "agent-3"},
        ("trace_id", "span_count", "model_calls"),
    ),
    Question(
        "What happened in one episode?",
        "read_episode",
        _no_filter,
        ("episode_id", "outcome", "reward", "step_count", "policy_version"),
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
    sql = (_ANSWERS / f"{QUESTIONS.index(question) + 1:02}.sql").read_text(encoding="utf-8")
    named = {name: value for name, value in world._asdict().items() if f"{{{name}:" in sql}
    frame = connection.query(sql, doing=question.text, parameters=named)
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
