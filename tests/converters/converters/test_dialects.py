"""One program, recorded through many instrumentors, comes out as one and the same structure.

The recordings beside this file were made for this project: an agent ``weather_agent`` with the tool ``get_weather``
is asked for the weather in Paris, and then in Nowhere, where the tool raises ``ValueError("weather backend down")``.
"""

import json
from typing import Any, NamedTuple

import polars as pl
import pytest

from spanloop.converters import Converted, frames

from .converters_world import OPENING, World, answers, asks, convert, text, trace_id
from .test_recordings import convert_recording

MODEL = "gpt-4o-2024-08-06"


class Shape(NamedTuple):
    """What of the program an instrumentor lets through."""

    name: str
    agent: str = "weather_agent"
    nowhere_steps: int = 2
    """1 where the framework lets the tool's error end the run."""
    episodes: int = 2
    system: str = "Be helpful"
    finish: str = "tool_call"
    tools: bool = True
    has_tool_span: bool = True
    duplicates: int = 0


SHAPES = [
    Shape("agentscope"),
    Shape("autogen_openllmetry"),
    Shape("pydantic_ai_v2", nowhere_steps=1),
    Shape("pydantic_ai_v6", nowhere_steps=1),
    Shape("smolagents_openinference", system="You call tools.", finish=""),
    Shape("strands", tools=False),
    Shape("litellm", agent="", episodes=1, has_tool_span=False, duplicates=2),
    Shape("openllmetry_0_33", agent="", episodes=1, has_tool_span=False),
    Shape("langchain_openinference", nowhere_steps=1, duplicates=3),
    Shape("langchain_openllmetry", nowhere_steps=1),
    Shape("langchain_otel_genai", nowhere_steps=1),
    Shape("openai_agents_openinference", duplicates=4),
    Shape("openai_agents_openllmetry", duplicates=4),
]


def steps_of(converted: Converted, number: int) -> list[dict[str, Any]]:
    """The transitions of the episode that began as the given one, with their JSON decoded."""
    episode = converted.episodes.sort("started_at").item(number, "episode_id")
    rows = converted.transitions.filter(pl.col("episode_id") == episode).sort("step").iter_rows(named=True)
    decoded = ("state", "action", "tool_results", "tools")
    return [row | {name: json.loads(row[name]) for name in decoded} for row in rows]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_run_that_works(shape: Shape) -> None:
    _, converted = convert_recording(shape.name)
    first, second = steps_of(converted, 0)
    assert {first["agent_name"], second["agent_name"]} == {shape.agent}
    opening = [(message["role"], message["parts"][0]["content"]) for message in first["state"]]
    assert opening[0] == ("system", shape.system)
    assert opening[1][0] == "user"
    assert "Weather in Paris?" in opening[1][1]
    (call,) = [part for part in first["action"]["parts"] if part["type"] == "tool_call"]
    assert (call["name"], call["arguments"]) == ("get_weather", {"city": "Paris"})
    (result,) = first["tool_results"]
    assert (result["tool_call_id"], result["name"], result["status"]) == (call["id"], "get_weather", "ok")
    assert "57F in Paris" in result["content"]
    assert bool(result["span_id"]) == shape.has_tool_span
    assert first["finish_reason"] == shape.finish
    assert second["state"][: len(first["state"])] == first["state"]
    assert len(second["state"]) == len(first["state"]) + 2
    assert "It is rainy in Paris." in json.dumps(second["action"])
    assert (first["input_tokens"], first["output_tokens"]) == (21, 7)
    assert first["model"].startswith("gpt-4o")
    assert (first["is_trainable"], second["is_trainable"], second["is_terminated"]) == (True, True, True)
    assert [tool["name"] for tool in first["tools"]][:1] == (["get_weather"] if shape.tools else [])


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.episodes == 2], ids=lambda shape: shape.name)
def test_the_run_whose_tool_fails(shape: Shape) -> None:
    _, converted = convert_recording(shape.name)
    assert converted.episodes.height == 2
    steps = steps_of(converted, 1)
    assert len(steps) == shape.nowhere_steps
    (result,) = steps[0]["tool_results"]
    assert (result["name"], result["status"]) == ("get_weather", "error")
    (failure,) = converted.failures.iter_rows(named=True)
    assert (failure["tool_name"], failure["error_class"], failure["fault_owner"]) == (
        "get_weather",
        "tool_error",
        "tool",
    )
    assert failure["is_recovered"] == (shape.nowhere_steps == 2)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_nothing_is_lost_and_duplicates_are_named(shape: Shape) -> None:
    recorded, converted = convert_recording(shape.name)
    reasons = dict(converted.rejected["reason"].value_counts().iter_rows())
    assert converted.transitions.height + sum(reasons.values()) == len(recorded["spans"])
    assert reasons.get("duplicate_model_call", 0) == shape.duplicates
    assert set(reasons) <= {"context", "duplicate_model_call", "no_model_call"}


def test_autogen_alone_tells_of_agents_and_tools_and_of_no_model_call() -> None:
    recorded, converted = convert_recording("autogen")
    assert converted.episodes.is_empty()
    assert converted.rejected["reason"].to_list() == ["no_model_call"] * len(recorded["spans"])


def converted_spans(*spans: dict[str, Any], scope: str = "") -> Converted:
    world = World()
    for number, attributes in enumerate(spans):
        world.span("call", attributes, trace=trace_id(f"t{number}"), scope=scope)
    return world.convert()


def test_the_messages_of_a_request_are_read_where_numbered_attributes_were_pushed_out() -> None:
    asked = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}], "temperature": 0.5}
    converted = converted_spans(
        {
            "openinference.span.kind": "LLM",
            "input.value": json.dumps(asked),
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.content": "q",
            "output.value": json.dumps(
                {"id": "r", "choices": [{"finish_reason": "length", "message": {"role": "assistant", "content": "a"}}]}
            ),
        }
    )
    row = converted.transitions.row(0, named=True)
    assert [message["role"] for message in json.loads(row["state"])] == ["system", "user"]
    assert (row["response_id"], row["finish_reason"], row["sampling"]) == ("r", "length", {"temperature": "0.5"})
    assert json.loads(row["action"])["parts"] == [{"type": "text", "content": "a"}]


@pytest.mark.parametrize(("id_in_response", "expected"), [("call_1", "call_1"), (None, "")])
def test_a_tool_calls_id_is_read_from_the_response_where_the_numbered_attributes_have_none(
    id_in_response: str | None, expected: str
) -> None:
    call = {"name": "get_weather", "args": {"city": "Oslo"}, "id": id_in_response}
    response = {"candidates": [{"content": {"role": "model", "parts": [{"function_call": call}]}}]}
    prefix = "llm.output_messages.0.message"
    world = World()
    world.span(
        "GenerateContent",
        trace=trace_id("gemini"),
        attributes={
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "Weather?",
            f"{prefix}.role": "model",
            f"{prefix}.tool_calls.0.tool_call.function.name": "get_weather",
            f"{prefix}.tool_calls.0.tool_call.function.arguments": '{"city": "Oslo"}',
            "output.value": json.dumps(response),
        },
    )
    (step,) = steps_of(world.convert(), 0)
    (part,) = step["action"]["parts"]
    assert (part["name"], part.get("id", "")) == ("get_weather", expected)


def test_the_vercel_ai_sdk() -> None:
    tool = {"type": "function", "name": "search", "inputSchema": {"type": "object"}}
    prompt = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "q"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "c0", "toolName": "search", "input": {"query": "x"}}],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c0",
                    "toolName": "search",
                    "output": {"type": "text", "value": 1},
                }
            ],
        },
    ]
    call = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "m",
        "ai.prompt.messages": json.dumps(prompt),
        "ai.prompt.tools": [json.dumps(tool)],
        "ai.response.text": "thinking",
        "ai.response.toolCalls": json.dumps([{"toolCallId": "c1", "toolName": "search", "args": {"query": "y"}}]),
        "ai.response.finishReason": "tool-calls",
        "ai.usage.promptTokens": 5,
    }
    row = converted_spans(call).transitions.row(0, named=True)
    state = json.loads(row["state"])
    assert [message["role"] for message in state] == ["system", "user", "assistant", "tool"]
    assert state[2]["parts"][0] == {"type": "tool_call", "id": "c0", "name": "search", "arguments": {"query": "x"}}
    assert state[3]["parts"][0]["id"] == "c0"
    assert [part["type"] for part in json.loads(row["action"])["parts"]] == ["text", "tool_call"]
    assert (row["finish_reason"], row["input_tokens"]) == ("tool_call", 5)
    assert json.loads(row["tools"]) == [{"name": "search", "parameters": {"type": "object"}}]


@pytest.mark.parametrize(
    "attributes",
    [
        {"acme.llm.prompt_tokens": 5, "acme.prompt": "q"},
        {"acme.span.kind": "LLM"},
        {"llm.model": "m", "llm.answer": "a"},
        {"langfuse.observation.type": "generation"},
    ],
)
def test_a_model_call_of_an_unknown_dialect_is_rejected_with_what_gave_it_away(attributes: dict[str, Any]) -> None:
    converted = converted_spans(attributes, scope="acme.tracing")
    ((reason, detail),) = converted.rejected.select("reason", "detail").iter_rows()
    assert reason == "unsupported_dialect"
    assert "acme.tracing" in detail
    assert any(key in detail for key in attributes)


def test_an_operation_that_nobody_has_named_is_a_model_call_where_it_has_messages() -> None:
    attributes = {
        "gen_ai.operation.name": "responses",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "q"}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "a"}]),
    }
    assert converted_spans(attributes).transitions.height == 1


@pytest.mark.parametrize("order", [1, -1])
def test_log_events_make_up_a_call_in_any_order_and_count_for_its_revision(order: int) -> None:
    world = World()
    trace = trace_id("t")
    own = world.span("chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, trace=trace)
    told = [
        ("gen_ai.user.message", {"content": "q"}),
        ("gen_ai.assistant.message", {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
        ("gen_ai.tool.message", {"id": "c", "content": "42"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "a"}}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "a"}}),
    ]
    start = int(world.spans[0]["Timestamp"])
    rows = [
        {
            "Timestamp": start + min(number, 3),
            "TraceId": trace,
            "SpanId": own,
            "EventName": name if number else "",
            "Body": json.dumps(body),
            "LogAttributes": [{"key": "event.name", "value": name}],
            "IngestedAt": start // 1_000 + number,
        }
        for number, (name, body) in enumerate(told)
    ]
    schema = pl.Schema({**frames.LOGS, "Timestamp": pl.Int64(), "IngestedAt": pl.Int64()})
    logs = pl.DataFrame(rows[::order], schema=schema).with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
    )
    converted = convert(world.span_frame(), scores=world.score_frame(), generations=world.generation_frame(), logs=logs)
    row = converted.transitions.row(0, named=True)
    assert [message["role"] for message in json.loads(row["state"])] == ["user", "assistant", "tool"]
    assert json.loads(row["action"])["parts"] == [{"type": "text", "content": "a"}]
    assert row["finish_reason"] == "stop"
    assert row["revision"] == max(world.spans[0]["IngestedAt"], rows[3]["IngestedAt"])


@pytest.mark.parametrize(
    "spans",
    [
        # siblings, as two instrumentors of one client leave them
        [("a", "one", 0.0, 1.0), ("b", "two", 0.1, 0.8)],
        # and a third of yet another scope within the second
        [("a", "one", 0.0, 1.0), ("b", "two", 0.1, 0.8), ("c", "three", 0.2, 0.5)],
    ],
)
def test_one_call_in_roots_of_several_scopes_is_one_step(spans: list[tuple[str, str, float, float]]) -> None:
    world = World()
    for name, scope, start, duration in spans:
        world.call(
            OPENING,
            text("assistant", "Sunny."),
            trace=trace_id(name),
            scope=scope,
            start_s=start,
            duration_s=duration,
            response_id="chatcmpl-4vNQ0bLw8mZr2kTqXfHs9dYc",
        )
    converted = world.convert()
    assert converted.transitions["trace_id"].to_list() == [trace_id("a")]
    assert converted.rejected["reason"].to_list() == ["duplicate_model_call"] * (len(spans) - 1)


@pytest.mark.parametrize(
    ("scope", "start", "answer"),
    [("one", 0.1, "Sunny."), ("two", 0.9, "Sunny."), ("two", 0.1, "Rain.")],
)
def test_equal_calls_that_ran_for_themselves_stay_apart(scope: str, start: float, answer: str) -> None:
    world = World()
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("a"), scope="one", start_s=0, duration_s=1)
    world.call(
        OPENING, text("assistant", answer), trace=trace_id("b"), scope=scope, start_s=start, duration_s=0.8,
        response_id="" if answer == "Sunny." else "other",
    )  # fmt: skip
    assert world.convert().transitions.height == 2


RESPONSE = "chatcmpl-BvX2kq9Zt4LwN7sRfYc1HdJm83Qe"


@pytest.mark.parametrize("scope", ["one", "two"])
def test_spans_of_one_response_are_one_step_whatever_they_wrote_of_the_input(scope: str) -> None:
    world = World()
    said = text("assistant", "Sunny.")
    place: dict[str, Any] = {"trace": trace_id("a"), "response_id": RESPONSE}
    world.call(OPENING, said, scope="one", start_s=0, duration_s=1, **place)
    world.call(OPENING[1:], said, scope=scope, start_s=0.1, duration_s=1, **place)
    assert world.convert().transitions.height == 1


@pytest.mark.parametrize(
    ("identifier", "trace", "steps"), [("c1", "a", 1), ("c1", "b", 2), ("call_4vNQ0bLw8mZr2kTqXfHs9dYc", "b", 1)]
)
def test_equal_outputs_with_equal_call_ids_are_one_step(identifier: str, trace: str, steps: int) -> None:
    """A framework's tracer and a client's, where only one of them writes the system prompt down."""
    world = World()
    said = asks(identifier)
    where: dict[str, Any] = {"start_s": 0, "duration_s": 1, "attributes": {"gen_ai.response.id": ""}}
    world.call(OPENING, said, trace=trace_id("a"), scope="one", **where)
    world.call(OPENING[1:], said, trace=trace_id(trace), scope="two", **where)
    assert world.convert().transitions.height == steps


@pytest.mark.parametrize(("inner_ids", "steps"), [(("c1", "c2"), 1), (("c1", "c3"), 2)])
def test_a_call_whose_tool_results_two_tracers_group_otherwise_is_one_step(
    inner_ids: tuple[str, str], steps: int
) -> None:
    """Strands' tracer writes the results of parallel tool calls as one message, its client's as one each."""
    world = World()
    results = [answers("c1", "Sunny."), answers("c2", "Rain.")]
    grouped = {"role": "tool", "parts": [part for message in results for part in message["parts"]]}
    said = text("assistant", "Sun, then rain.")
    where: dict[str, Any] = {"trace": trace_id("a"), "attributes": {"gen_ai.response.id": ""}}
    outer = world.call([*OPENING, grouped], said, scope="one", start_s=0, duration_s=1, **where)
    inner = [answers(identity, "Sunny." if identity == "c1" else "Rain.") for identity in inner_ids]
    world.call([*OPENING, *inner], said, scope="two", start_s=0.1, duration_s=0.5, parent=outer, **where)
    assert world.convert().transitions.height == steps


def test_agentscopes_first_release() -> None:
    asked: dict[str, Any] = {"args": [[{"role": "user", "content": "q"}]], "kwargs": {}}
    said = (
        "ChatResponse(content=[{'type': 'text', 'text': \"it's [here\"}, "
        "{'type': 'tool_use', 'id': 'c', 'name': 'search', 'input': {'query': 'x'}}], id='1', "
        "usage=ChatUsage(input_tokens=5, output_tokens=3, time=0.1, type='chat'))"
    )
    attributes = {
        "span.kind": '"LLM"',
        "input": json.dumps(asked),
        "output": json.dumps(said),
        "metadata": json.dumps({"model_name": "m", "stream": False}),
    }
    row = converted_spans(attributes, scope="agentscope.tracing._trace").transitions.row(0, named=True)
    assert json.loads(row["state"]) == [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    assert [part["type"] for part in json.loads(row["action"])["parts"]] == ["text", "tool_call"]
    assert (row["model"], row["finish_reason"], row["input_tokens"], row["output_tokens"]) == ("m", "tool_call", 5, 3)
