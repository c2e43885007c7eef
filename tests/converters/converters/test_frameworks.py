"""The weather program of ``test_dialects`` through more frameworks and clients: each comes out with its structure.

Each was recorded against a local server that answers as the model's API does: ``get_weather`` is called for Paris and
answers ``57F in Paris``; for Nowhere it raises ``ValueError("weather backend down")``, which most frameworks tell the
model, and some let end the run.
"""

import json
from typing import Any, NamedTuple

import polars as pl
import pytest

from spanloop.converters import Converted, frames

from . import converters_recordings as recordings
from .converters_world import OPENING, World, asks, convert, text, trace_id
from .test_dialects import steps_of
from .test_recordings import convert_recording

Row = dict[str, Any]


class Seen(NamedTuple):
    """What a recording tells of the program."""

    name: str
    agent: str = ""
    system: str = "Be helpful"
    """How the system prompt begins; empty where nobody recorded it."""
    model: str = "gpt-4o"
    nowhere_steps: int = 2
    finish: tuple[str, str] = ("tool_call", "stop")
    tools: bool = True
    call_ids: bool = True
    response_ids: bool = True
    tool_spans: bool = False
    sampling: bool = True
    text_before: str = ""
    """What the model says before it calls."""
    rejected: dict[str, int] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    """Beside the context."""
    error: str = "ValueError"
    failures: tuple[str, ...] = ("tool_error",)


CLAUDE = "claude-sonnet-4"
GEMINI = "gemini-2.5-flash"
TWICE = {"duplicate_model_call": 4}
SEEN = [
    Seen("anthropic_openinference", model=CLAUDE, sampling=False, text_before="Let me look.", rejected=TWICE),
    Seen("anthropic_openllmetry", model=CLAUDE, sampling=False, text_before="Let me look.", rejected=TWICE),
    Seen("gemini_openinference", model=GEMINI, call_ids=False),
    Seen("gemini_openllmetry", model=GEMINI, call_ids=False, sampling=False),
    Seen("bedrock_openinference", model="anthropic.claude-3-5", response_ids=False, text_before="Let me look."),
    Seen("bedrock_openllmetry", model="claude-3-5", response_ids=False, text_before="Let me look."),
    Seen("anthropic_otel_genai", model=CLAUDE, sampling=False, text_before="Let me look.", rejected=TWICE),
    Seen("gemini_otel", model=GEMINI),
    Seen("agent_framework", "weather_agent", tools=False, tool_spans=True, sampling=False),
    Seen("agno_openinference", "weather_agent", finish=("", ""), response_ids=False, tool_spans=True, error=""),
    Seen("groq_openllmetry"),
    Seen("litellm_openinference", response_ids=False),
    Seen("azure_ai_inference", tools=False),
    Seen("logfire_openai"),
    Seen(
        "google_adk", "weather_agent", model=GEMINI, nowhere_steps=1, response_ids=False, tool_spans=True,
        sampling=False,
    ),
    Seen(
        "google_adk_1_5", "weather_agent", model=GEMINI, nowhere_steps=1, finish=("tool_call", ""), call_ids=False,
        response_ids=False, tool_spans=True, failures=("tool_error",),
    ),
    Seen("llama_index_openinference", tool_spans=True, sampling=False, rejected=TWICE),
    Seen("semantic_kernel", "weather_agent", tools=False, tool_spans=True, sampling=False),
    Seen("crewai_openinference", "weather_agent", system="You are weather_agent.", tool_spans=True),
    Seen("crewai_openllmetry", "weather_agent", system="You are weather_agent.", error=""),
    Seen("ag2", "weather_agent", system="", tools=False, response_ids=False, tool_spans=True, sampling=False),
    Seen(
        "autogen_openinference", "weather_agent", tools=False, response_ids=False, tool_spans=True, sampling=False,
        rejected={"no_model_call": 2},
    ),
    Seen("agentops", tool_spans=True),
    Seen("fastmcp_openllmetry", tool_spans=True, error="tool_error"),
    Seen("haystack_native", "weather_agent", response_ids=False, sampling=False, error=""),
    Seen("langfuse", "weather_agent", finish=("tool_call", ""), response_ids=False, tool_spans=True),
    Seen("langsmith", tool_spans=True),
    Seen("mlflow", "weather_agent", tool_spans=True),
    Seen("strands_events", "weather_agent", tools=False, response_ids=False, tool_spans=True, sampling=False),
    Seen("langchain_openllmetry_0_40", finish=("tool_call", ""), tool_spans=True),
    Seen(
        "logfire_openai_agents", "weather_agent", finish=("tool_call", ""), tools=False, response_ids=False,
        tool_spans=True, sampling=False, error="",
    ),
    Seen(
        "pydantic_ai_0_4", "weather_agent", nowhere_steps=1, finish=("", ""), response_ids=False, tool_spans=True
    ),
    Seen("pydantic_ai_1_0", "weather_agent", nowhere_steps=1, tool_spans=True),
    Seen("vercel_ai_6", "weather_agent", tool_spans=True, error="Error"),
    Seen("vercel_ai_4", "weather_agent", nowhere_steps=1, tool_spans=True, error="AI_ToolExecutionError"),
]  # fmt: skip


def asked(row: Row) -> Row:
    """The one tool call of an action."""
    (call,) = [part for part in row["action"]["parts"] if part["type"] == "tool_call"]
    assert str(call["name"]).endswith("get_weather")
    return dict(call)


def opening(row: Row) -> list[tuple[str, str]]:
    return [(message["role"], message["parts"][0]["content"]) for message in row["state"] if message["parts"]]


def sorted_failures(converted: Converted) -> list[str]:
    return converted.failures.sort("step", "failure_id")["error_class"].to_list()


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_run_that_works(seen: Seen) -> None:
    _, converted = convert_recording(seen.name)
    first, second = steps_of(converted, 0)
    assert {first["agent_name"], second["agent_name"]} == {seen.agent}
    begins = opening(first)
    if seen.system:
        assert begins[0][0] == "system"
        assert begins[0][1].startswith(seen.system)
    assert begins[-1][0] == "user"
    assert "Weather in Paris?" in begins[-1][1]
    call = asked(first)
    assert call["arguments"] == {"city": "Paris"}
    assert bool(call["id"]) == seen.call_ids
    said = [part["content"] for part in first["action"]["parts"] if part["type"] == "text"]
    assert "".join(said).strip() == seen.text_before
    (result,) = first["tool_results"]
    assert (result["status"], result["tool_call_id"]) == ("ok", call["id"])
    assert "57F in Paris" in result["content"]
    assert bool(result["span_id"]) == seen.tool_spans
    assert second["state"][: len(first["state"])] == first["state"]
    assert len(second["state"]) == len(first["state"]) + 2
    assert "It is rainy in Paris." in json.dumps(second["action"])
    assert (first["finish_reason"], second["finish_reason"]) == seen.finish
    assert (first["input_tokens"], first["output_tokens"]) == (21, 7)
    assert first["model"].removeprefix("openai/").startswith(seen.model)
    assert first["is_trainable"]
    assert second["is_trainable"]
    assert (first["is_terminated"], second["is_terminated"]) == (False, True)
    assert bool(first["response_id"] and second["response_id"]) == seen.response_ids
    assert ("0.2" in first["sampling"].values()) == seen.sampling
    names = [tool["name"] for tool in first["tools"]]
    assert names == (["get_weather"] if seen.tools else [])
    assert all(tool.get("parameters") for tool in first["tools"])


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_run_whose_tool_fails(seen: Seen) -> None:
    _, converted = convert_recording(seen.name)
    assert converted.episodes.height == 2
    steps = steps_of(converted, 1)
    assert len(steps) == seen.nowhere_steps
    assert asked(steps[0])["arguments"] == {"city": "Nowhere"}
    (result,) = steps[0]["tool_results"]
    assert (result["status"], result["error_type"]) == ("error", seen.error)
    assert sorted_failures(converted) == list(seen.failures)
    failure = converted.failures.filter(pl.col("error_class") == "tool_error").row(0, named=True)
    assert (failure["fault_owner"], failure["step"]) == ("tool", 0)
    assert failure["is_recovered"] == (seen.nowhere_steps == 2)
    assert str(failure["tool_name"]).endswith("get_weather")


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_nothing_is_lost(seen: Seen) -> None:
    recorded, converted = convert_recording(seen.name)
    reasons = dict(converted.rejected["reason"].value_counts().iter_rows())
    assert converted.transitions.height + sum(reasons.values()) == len(recorded["spans"])
    assert {reason: count for reason, count in reasons.items() if reason != "context"} == seen.rejected


BY_SCOPE = {
    "agentscope",
    "anthropic_loop_openllmetry",
    "google_adk_1_18",
    "langchain_anthropic_stream",
    "mistral_openllmetry",
}
"""Recordings whose spelling, or that two tracers saw one call, only the scope gives away."""


@pytest.mark.parametrize("name", sorted({path.stem for path in recordings.OWN.glob("*.json")} - BY_SCOPE))
def test_attributes_tell_the_dialect_whatever_the_scope(name: str) -> None:
    recorded, expected = convert_recording(name)
    spans = recordings.span_frame(recorded["spans"]).with_columns(ScopeName=pl.lit("acme.") + pl.col("ScopeName"))
    got = convert(
        spans,
        scores=frames.empty(frames.SCORES),
        generations=frames.empty(frames.GENERATIONS),
        logs=recordings.log_frame(recorded.get("log_events", ())),
    )
    for table in ("episodes", "transitions", "failures"):
        assert getattr(got, table).equals(getattr(expected, table)), table


def test_a_sub_agent_behind_a_tool_keeps_its_place_and_its_own_tool() -> None:
    _, converted = convert_recording("langgraph_sub_agent")
    assert converted.episodes.height == 1
    steps = steps_of(converted, 0)
    assert [step["agent_name"] for step in steps] == ["planner", "specialist", "specialist", "planner"]
    results = [[(r["name"], r["status"], bool(r["span_id"])) for r in step["tool_results"]] for step in steps]
    assert results == [[("get_weather_report", "ok", True)], [("get_weather", "ok", True)], [], []]
    assert json.loads(steps[0]["next_state"])[: len(steps[0]["state"])] == steps[0]["state"]
    assert steps[0]["next_state"] == json.dumps(steps[3]["state"], separators=(",", ":"), ensure_ascii=False)


def test_a_tool_call_that_an_instrumentor_lost_is_missing_content_and_no_mistake_of_the_policy() -> None:
    # OpenLLMetry's LlamaIndex instrumentor 0.62 leaves the calls out and says that there were some.
    said: Row = {"role": "assistant", "parts": [], "finish_reason": "tool_call"}
    world = World()
    attributes = {"gen_ai.output.messages": json.dumps([said]), "gen_ai.request.temperature": "None"}
    world.call(OPENING, text("assistant", "x"), trace=trace_id("t"), finish="tool_call", attributes=attributes)
    converted = world.convert()
    row = converted.transitions.row(0, named=True)
    assert (row["untrainable_reason"], row["sampling"]) == ("missing_content", {})
    assert row["span_id"] in row["untrainable_detail"]
    assert converted.failures.is_empty()


@pytest.mark.parametrize("has_other_trace", [False, True])
def test_an_answer_that_is_marked_as_an_error_is_one_whatever_it_says(*, has_other_trace: bool) -> None:
    world = World()
    said = asks("c1")
    said["parts"].append(asks("c2")["parts"][0])
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "no such page", "is_error": True},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no such page"},
    ]
    world.call(OPENING, said, trace=trace_id("t"))
    seen = [*OPENING, said, {"role": "user", "content": results}]
    world.call(seen, text("assistant", "done"), trace=trace_id("u" if has_other_trace else "t"))
    row = world.convert().transitions.sort("started_at").row(0, named=True)
    assert [result["status"] for result in json.loads(row["tool_results"])] == ["error", "ok"]
    assert row["tool_error_count"] == 1


def test_handoffs_and_agents_as_tools_keep_their_agents_and_their_places() -> None:
    _, converted = convert_recording("openai_agents_handoff")
    handed, asked_for = (steps_of(converted, number) for number in range(2))
    assert [step["agent_name"] for step in handed] == ["triage", "weather_agent"]
    assert [step["agent_name"] for step in asked_for] == ["boss", "weather_agent", "weather_agent", "boss"]
    results = [[(r["name"], r["status"]) for r in step["tool_results"]] for step in (*handed, *asked_for)]
    expected = ["transfer_to_weather_agent", "", "ask_weather_agent", "get_weather", "", ""]
    assert results == [[(name, "ok")] if name else [] for name in expected]
    assert converted.failures.is_empty()


def test_a_stream_of_an_older_anthropic_instrumentor_has_no_answer() -> None:
    _, converted = convert_recording("anthropic_openllmetry_0_40")
    first, second = steps_of(converted, 1)
    assert [part["type"] for part in first["action"]["parts"]] == ["reasoning", "text", "tool_call"]
    assert first["finish_reason"] == "tool_call"
    assert second["untrainable_reason"] == "missing_content"
    assert [step["is_trainable"] for step in steps_of(converted, 0)] == [True, True]


def test_ollamas_instrumentor_leaves_tool_calls_out_of_the_answer() -> None:
    _, converted = convert_recording("ollama_openllmetry")
    first, second = steps_of(converted, 0)
    assert first["untrainable_reason"] == "missing_content"
    assert [message["role"] for message in second["state"]] == ["system", "user", "assistant", "tool"]
    assert second["is_trainable"]


def test_dspy_speaks_in_text_and_its_tools_are_context() -> None:
    recorded, converted = convert_recording("dspy_openinference")
    assert converted.episodes["step_count"].to_list() == [3, 3]
    assert "get_weather" in json.dumps(steps_of(converted, 0)[0]["action"])
    assert converted.transitions.height + converted.rejected.height == len(recorded["spans"])
    (failure,) = converted.failures.iter_rows(named=True)
    assert (failure["error_class"], failure["tool_name"]) == ("tool_error", "get_weather")


def test_claudes_thoughts_are_reasoning_in_the_answer_and_in_the_history() -> None:
    for name in ("anthropic_openinference", "anthropic_openllmetry"):
        _, converted = convert_recording(name)
        first, second = steps_of(converted, 1)
        for message in (first["action"], second["state"][2]):
            assert message["parts"][0]["type"] == "reasoning"
            assert message["parts"][0]["content"] == "I need the weather."
