"""ATIF in and out: an episode that is exported, imported and converted again has the same steps."""

import base64
import json
from typing import Any, NamedTuple

import polars as pl
import pytest
from google.protobuf.json_format import MessageToDict

from spanloop.converters import frames
from spanloop.converters.exports import KINDS, ExportOptions
from spanloop.converters.tokens.message_numbers import with_state_texts
from spanloop.importing.conversations import ConversationReader
from spanloop.importing.report import BadItemError
from spanloop.semconv import atif

from .converters_recordings import OWN, RECORDINGS, load, span_frame
from .converters_world import OPENING, World, answers, asks, convert, exported_transitions, text, trace_id
from .otlp_json import delivered

NAMES = sorted({path.stem for folder in (OWN, RECORDINGS) if folder.exists() for path in folder.glob("*.json")})
SAME = (
    *("step", "state", "action", "tools", "model", "finish_reason", "input_tokens", "output_tokens", "agent_name"),
    *("started_at", "duration_ns", "prompt_token_ids", "response_token_ids", "logprobs", "response_id", "reward"),
)
"""What a step has in common with itself after its way through a file."""
JSON_COLUMNS = ("state", "action", "tools")
Json = dict[str, Any]


def documents(rows: pl.DataFrame) -> list[Json]:
    """The trajectories, each of which is valid JSON with numbered steps."""
    made = KINDS["atif"].make(rows, ExportOptions())
    assert made.accepted + sum(made.rejected.values()) == rows.height
    assert isinstance(made.rows, list)
    trajectories = [json.loads(line) for line in made.rows]
    for trajectory in trajectories:
        assert [step["step_id"] for step in trajectory["steps"]] == list(range(1, len(trajectory["steps"]) + 1))
        for step in trajectory["steps"]:
            # a result refers to a call of its step, or to none
            calls = {None, *(call["tool_call_id"] for call in step.get("tool_calls", ()))}
            assert {result["source_call_id"] for result in step.get("observation", {}).get("results", ())} <= calls
    return trajectories


def imported(trajectory: Json, *, reward: float | None = None) -> pl.DataFrame:
    """The steps of a trajectory that is imported and converted."""
    conversation = ConversationReader().read_atif(trajectory, default_time_ns=10**18)
    request = MessageToDict(conversation.request)
    for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            span[key] = base64.b64decode(span.get(key, "")).hex()
    converted = delivered([request]).convert(reward=reward)
    converted = converted._replace(transitions=with_state_texts(converted.transitions, converted.messages))
    return exported_transitions(converted)


def steps(rows: pl.DataFrame, columns: tuple[str, ...] = SAME) -> list[Json]:
    """The compared columns of each step, with JSON as values."""
    return [
        {name: json.loads(value or "null") if name in JSON_COLUMNS else value for name, value in row.items()}
        for row in rows.sort("step").select(columns).to_dicts()
    ]


def recorded(name: str) -> pl.DataFrame:
    """The steps of a recording."""
    empty = {"scores": frames.empty(frames.SCORES), "generations": frames.empty(frames.GENERATIONS)}
    return exported_transitions(convert(span_frame(load(name)["spans"]), **empty))


class RoundTrip(NamedTuple):
    """The steps of an episode of a recording, and the same after export and import."""

    recorded: pl.DataFrame
    imported: pl.DataFrame


@pytest.fixture(scope="module", params=NAMES)
def round_trips(request: pytest.FixtureRequest) -> list[RoundTrip]:
    """The episodes of a recording, converted once for all tests of it."""
    rows = recorded(request.param)
    return [
        RoundTrip(rows.filter(pl.col("episode_id") == trajectory["session_id"]), imported(trajectory))
        for trajectory in documents(rows)
    ]


def test_a_recorded_episode_is_the_same_after_export_and_import(round_trips: list[RoundTrip]) -> None:
    for round_trip in round_trips:
        assert steps(round_trip.imported) == steps(round_trip.recorded)


def results(rows: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Name, status and content of each tool result."""
    cells = rows.sort("step")["tool_results"].to_list()
    return [(each["name"], each["status"], each["content"]) for cell in cells for each in json.loads(cell or "[]")]


def test_recorded_results_of_tools_are_the_same_after_export_and_import(round_trips: list[RoundTrip]) -> None:
    for round_trip in round_trips:
        assert results(round_trip.imported) == results(round_trip.recorded)


def test_tokens_rewards_and_native_fields_are_written_and_read() -> None:
    world = World()
    trace, task = trace_id("a"), {"spanloop.task.id": "weather-1"}
    world.call(OPENING, asks("c1"), trace=trace, response_id="r1", attributes=task)
    world.call([*OPENING, asks("c1"), answers("c1", "42")], text("assistant", "Sunny."), trace=trace, response_id="r2")
    world.capture([1, 2], [3], response_id="r1")
    world.capture([1, 2, 3, 4], [5, 6], response_id="r2")
    world.score(0.5, trace_id=trace)
    rows = exported_transitions(world.convert())
    (trajectory,) = documents(rows)
    system, user, call, answer = trajectory["steps"]
    assert (system["source"], user["source"], call["source"]) == ("system", "user", "agent")
    assert call["tool_calls"] == [
        {"tool_call_id": "c1", "function_name": "search", "arguments": {"query": "c1"}},
    ]
    assert call["observation"] == {"results": [{"source_call_id": "c1", "content": "42"}]}
    assert (answer["message"], answer["metrics"]["completion_token_ids"]) == ("Sunny.", [5, 6])
    assert trajectory["schema_version"].startswith(atif.SCHEMA_PREFIX)
    conversation = ConversationReader().read_atif(trajectory, default_time_ns=0)
    assert conversation.score is not None
    assert (conversation.score.value, conversation.score.task_id) == (0.5, "weather-1")
    assert steps(imported(trajectory, reward=0.5)) == steps(rows)


def test_a_trajectory_of_another_program_is_read() -> None:
    trajectory = {
        "schema_version": "ATIF-v1.4",
        "session_id": "s",
        "agent": {"name": "terminus", "version": "2", "model_name": "big"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "List the files."},
            {
                "step_id": 2,
                "timestamp": "2026-01-02T03:04:05Z",
                "source": "agent",
                "message": "",
                "reasoning_content": "I need ls.",
                "tool_calls": [{"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}],
                "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}]},
                "metrics": {"prompt_tokens": 7, "completion_tokens": 3},
            },
            {"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "One file: a.txt"}]},
        ],
    }
    first, second = steps(imported(trajectory))
    assert [part["type"] for part in first["action"]["parts"]] == ["reasoning", "tool_call"]
    assert (first["model"], first["agent_name"], first["input_tokens"]) == ("big", "terminus", 7)
    assert second["state"][-1]["parts"][0]["response"] == "a.txt"
    assert second["action"]["parts"] == [{"type": "text", "content": "One file: a.txt"}]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([], "no_model_call"),
        ([{"source": "user", "message": "hi"}], "no_model_call"),
        ([{"source": "robot", "message": "hi"}], "bad_message"),
        (["text"], "wrong_type"),
        ([{"source": "agent", "message": "", "tool_calls": "none"}], "bad_message"),
    ],
)
def test_a_malformed_trajectory_is_rejected_with_a_reason(steps: list[object], reason: str) -> None:
    trajectory = {"schema_version": "ATIF-v1.6", "agent": {"name": "a"}, "steps": steps}
    with pytest.raises(BadItemError) as error:
        ConversationReader().read_atif(trajectory, default_time_ns=0)
    assert error.value.reason == reason
