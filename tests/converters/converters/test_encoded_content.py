"""Content that is encoded twice, wrapped in an object, or spelled in an older form is read as what it is."""

import json
from typing import Any

import pytest

from .converters_world import World, trace_id

TRACE = trace_id("t")
ASKED = [{"role": "user", "content": "Look it up."}]
CALL = {"name": "lookup", "arguments": '{"key": "a"}'}
ANSWER = [{"role": "assistant", "content": "One moment.", "function_call": CALL}]


def otel(asked: object, answered: object) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": asked if isinstance(asked, str) else json.dumps(asked),
        "gen_ai.output.messages": answered if isinstance(answered, str) else json.dumps(answered),
        "gen_ai.response.finish_reasons": '["function_call"]',
    }


def langfuse(asked: object, answered: object) -> dict[str, Any]:
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps(asked),
        "langfuse.observation.output": json.dumps(answered),
    }


LANGCHAIN = {
    "lc": 1,
    "id": ["langchain", "AIMessage"],
    "kwargs": {"content": "One moment.", "additional_kwargs": {"function_call": CALL}},
}
PARTS = {
    "role": "assistant",
    "parts": [{"type": "text", "content": "One moment."}],
    "function_call": json.dumps(CALL),
}
CALLS: dict[str, dict[str, Any]] = {
    "list in text": otel(json.dumps(json.dumps(ASKED)), json.dumps(json.dumps(ANSWER))),
    "list in text in an object": otel({"messages": json.dumps(ASKED)}, {"messages": json.dumps(ANSWER)}),
    "object in text": otel(json.dumps({"v": 1, "messages": ASKED}), json.dumps({"v": 1, "messages": ANSWER})),
    "items in text": otel([json.dumps(ASKED[0])], [json.dumps(ANSWER[0])]),
    "beside parts": otel(ASKED, [PARTS]),
    "beside content of a wrapped answer": langfuse(ASKED, ANSWER[0]),
    "beside no tool calls": langfuse(ASKED, {**ANSWER[0], "tool_calls": []}),
    "among a message's further arguments": langfuse(ASKED, LANGCHAIN),
    "indexed": {
        "gen_ai.request.model": "tiny",
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Look it up.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "One moment.",
        "gen_ai.completion.0.function_call.name": "lookup",
        "gen_ai.completion.0.function_call.arguments": '{"key": "a"}',
    },
}


@pytest.mark.parametrize("case", CALLS)
def test_the_words_and_the_call_are_read(case: str) -> None:
    world = World()
    world.span("chat", CALLS[case], trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    assert json.loads(step["state"])[0]["parts"] == [{"type": "text", "content": "Look it up."}]
    words, call = json.loads(step["action"])["parts"]
    assert words == {"type": "text", "content": "One moment."}
    assert (call["type"], call["name"], call["arguments"]) == ("tool_call", "lookup", {"key": "a"})
    assert step["untrainable_reason"] in {"", "incomplete_stream"}


def in_an_object(tools: object) -> dict[str, object]:
    return {"tools": tools}


@pytest.mark.parametrize("shell", [json.dumps, in_an_object])
def test_tools_in_text_or_in_an_object_are_tools(shell: Any) -> None:
    tools = [{"type": "function", "name": "lookup", "parameters": {"type": "object"}}]
    world = World()
    world.span("chat", {**otel(ASKED, ANSWER), "gen_ai.tool.definitions": json.dumps(shell(tools))}, trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    assert [tool["name"] for tool in json.loads(step["tools"])] == ["lookup"]


OUTPUT = {
    "blocks": [{"block_type": "text", "text": "no such key"}],
    "tool_name": "lookup",
    "raw_input": {"kwargs": {"key": "a"}},
    "raw_output": "no such key",
    "is_error": True,
}
TOOL_SPANS: dict[str, dict[str, Any]] = {
    "tool of a workflow": {
        "traceloop.span.kind": "task",
        "traceloop.entity.output": json.dumps({"tool_name": "lookup", "tool_id": "c", "tool_output": OUTPUT}),
    },
    "tool itself": {
        "traceloop.span.kind": "task",
        "traceloop.entity.name": "FunctionTool.task",
        "traceloop.entity.output": json.dumps(OUTPUT),
    },
    "openinference": {
        "openinference.span.kind": "TOOL",
        "tool.name": "lookup",
        "output.value": json.dumps(OUTPUT, separators=(",", ":")),
    },
    "older, with content": {
        "traceloop.span.kind": "task",
        "traceloop.entity.output": json.dumps({"content": "no such key", **OUTPUT, "blocks": None}),
    },
}


@pytest.mark.parametrize("case", TOOL_SPANS)
def test_a_result_that_its_framework_marks_as_an_error_is_one(case: str) -> None:
    world = World()
    call = {"type": "tool_call", "id": "c", "name": "lookup", "arguments": {"key": "a"}}
    world.span("chat", otel(ASKED, [{"role": "assistant", "parts": [call]}]), trace=TRACE)
    span_id = world.span("tool", TOOL_SPANS[case], trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    (result,) = json.loads(step["tool_results"])
    assert (result["status"], result["content"], result["span_id"]) == ("error", "no such key", span_id)
