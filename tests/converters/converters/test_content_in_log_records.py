"""Log records that hold the whole content of their span, whatever the instrumentor and the record are called."""

import json
from typing import Any

import pytest

from spanloop.converters import frames

from .converters_recordings import log_frame
from .converters_world import World, convert, trace_id

TRACE = trace_id("t")
CALL = {"id": "c1", "name": "lookup", "arguments": {"key": "a"}}
TOOL_USE = {"type": "tool_use", "id": "c1", "name": "lookup", "input": {"key": "a"}}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": '{"key": "a"}'}}

SPANS: dict[str, tuple[dict[str, Any], dict[str, Any], object, object]] = {
    "openinference": (
        {"openinference.span.kind": "LLM", "llm.model_name": "tiny"},
        {"openinference.span.kind": "TOOL", "tool.name": "lookup"},
        "Look it up.",
        {"role": "assistant", "tool_calls": [OPENAI_CALL]},
    ),
    "strands": (
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny"},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup", "gen_ai.tool.call.id": "c1"},
        {"content": json.dumps([{"text": "Look it up."}])},
        {
            "message": json.dumps([{"toolUse": {"toolUseId": "c1", "name": "lookup", "input": {"key": "a"}}}]),
            "finish_reason": "tool_use",
        },
    ),
    "traceloop": (
        {"llm.request.type": "chat", "gen_ai.request.model": "tiny"},
        {"traceloop.span.kind": "tool", "traceloop.entity.name": "lookup"},
        [{"type": "text", "text": "Look it up."}],
        json.dumps([{"type": "text", "text": "One moment."}, TOOL_USE]),
    ),
}


def record(span_id: str, scope: str, given: object, answered: object, roles: tuple[str, str]) -> dict[str, Any]:
    body = {
        "input": {"messages": [{"role": roles[0], "content": given}]},
        "output": {"messages": [{"role": roles[1], "content": answered}]},
    }
    return {
        "timestamp": "2026-11-20T12:00:00Z",
        "observed_timestamp": "2026-11-20T12:00:00Z",
        "trace_id": TRACE,
        "span_id": span_id,
        "event_name": scope,
        "body": body,
        "attributes": {"event.name": scope},
    }


@pytest.mark.parametrize("framework", SPANS)
def test_content_in_a_record_under_the_spans_ids_is_the_spans(framework: str) -> None:
    chat, tool, question, action = SPANS[framework]
    world = World()
    call = world.span("chat", chat, trace=TRACE, scope="some.scope")
    used = world.span("lookup", tool, trace=TRACE, scope="some.scope")
    records = [
        record(call, "some.scope", question, action, ("user", "assistant")),
        record(used, "some.scope", json.dumps({"key": "a"}), "42", ("tool", "tool")),
    ]
    empty = {"scores": frames.empty(frames.SCORES), "generations": frames.empty(frames.GENERATIONS)}
    converted = convert(world.span_frame(), logs=log_frame(records), **empty)
    (step,) = converted.transitions.to_dicts()
    assert step["untrainable_reason"] == ""
    assert json.loads(step["state"])[0]["parts"] == [{"type": "text", "content": "Look it up."}]
    (asked,) = [part for part in json.loads(step["action"])["parts"] if part["type"] == "tool_call"]
    assert {key: asked[key] for key in CALL} == CALL
    (result,) = json.loads(step["tool_results"])
    assert (result["content"], result["span_id"]) == ("42", used)


def test_content_of_the_span_itself_counts_before_a_record() -> None:
    world = World()
    messages = {"gen_ai.input.messages": json.dumps([{"role": "user", "content": "Mine."}])}
    span = world.span("chat", {**SPANS["strands"][0], **messages}, trace=TRACE)
    logs = log_frame([record(span, "some.scope", "Yours.", "Hi.", ("user", "assistant"))])
    empty = {"scores": frames.empty(frames.SCORES), "generations": frames.empty(frames.GENERATIONS)}
    (step,) = convert(world.span_frame(), logs=logs, **empty).transitions.to_dicts()
    assert "Mine." in step["state"]
    assert "Yours." not in step["state"]


def test_a_record_with_another_body_tells_of_no_span() -> None:
    world = World()
    span = world.span("chat", SPANS["strands"][0], trace=TRACE)
    other = record(span, "some.scope", "Yours.", "Hi.", ("user", "assistant")) | {"body": {"message": "started"}}
    empty = {"scores": frames.empty(frames.SCORES), "generations": frames.empty(frames.GENERATIONS)}
    (step,) = convert(world.span_frame(), logs=log_frame([other]), **empty).transitions.to_dicts()
    assert step["untrainable_reason"] == "missing_content"
