"""Content that a span has in another place than its dialect's usual one is read before it counts as missing."""

import json
from typing import Any

from .converters_world import World, trace_id

TRACE = trace_id("t")
CALL = {"gen_ai.request.model": "tiny", "llm.request.type": "chat"}


def test_a_list_of_invalid_tool_calls_is_what_the_model_asked_for() -> None:
    world = World()
    said: dict[str, Any] = {"content": "", "type": "ai", "tool_calls": [{"id": "a", "name": "search", "args": {}}]}
    said["invalid_tool_calls"] = [{"id": "b", "name": "search", "args": '{"q": ', "error": "no JSON"}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Hi"}]),
        "gen_ai.output.messages": json.dumps([{"lc": 1, "id": ["AIMessage"], "kwargs": said}]),
        "gen_ai.response.finish_reasons": '["tool_calls"]',
    }
    world.span("chat", attributes, trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    calls = [part for part in json.loads(step["action"])["parts"] if part["type"] == "tool_call"]
    assert [(call["id"], call["arguments"]) for call in calls] == [("a", {}), ("b", '{"q": ')]


def test_an_indexed_function_call_beside_empty_parts_is_a_tool_call() -> None:
    world = World()
    attributes = {
        **CALL,
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Hi",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.parts": "[]",
        "gen_ai.completion.0.function_call.name": "search",
        "gen_ai.completion.0.function_call.arguments": '{"q": "x"}',
        "gen_ai.completion.0.finish_reason": "function_call",
    }
    world.span("chat", attributes, trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    (call,) = json.loads(step["action"])["parts"]
    assert (call["type"], call["name"]) == ("tool_call", "search")
    assert step["untrainable_reason"] != "missing_content"


def test_messages_in_a_frameworks_entity_attributes_are_a_calls() -> None:
    world = World()
    asked: dict[str, Any] = {"inputs": {"messages": [[{"role": "user", "content": "Hi"}]]}, "tags": []}
    message = {"lc": 1, "id": ["AIMessage"], "kwargs": {"content": "", "tool_calls": [{"id": "a", "name": "search"}]}}
    answered = {"outputs": {"generations": [[{"text": "", "message": message}]]}, "kwargs": {}}
    entity = {"traceloop.entity.input": json.dumps(asked), "traceloop.entity.output": json.dumps(answered)}
    world.span("ChatOpenAI.chat", {**CALL, **entity}, trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    assert "Hi" in step["state"]
    (call,) = json.loads(step["action"])["parts"]
    assert (call["type"], call["name"]) == ("tool_call", "search")


def test_a_function_that_agentops_traced_is_a_tool_with_arguments_and_a_result() -> None:
    world = World()
    parts = [{"type": "tool_call", "id": "a", "name": "search", "arguments": {"q": "x"}}]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Hi"}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}]),
        "gen_ai.response.finish_reasons": '["tool_calls"]',
    }
    world.span("chat", attributes, trace=TRACE)
    entity = {
        "agentops.span.kind": "tool",
        "agentops.entity.name": "search",
        "agentops.entity.input": json.dumps({"args": [], "kwargs": {"q": "x"}}),
        "agentops.entity.output": json.dumps("found"),
    }
    world.span("search.tool", entity, trace=TRACE)
    (step,) = world.convert().transitions.to_dicts()
    (result,) = json.loads(step["tool_results"])
    assert result["content"] == "found"


def test_a_reward_that_an_agentops_function_returned_is_the_episodes() -> None:
    for key in ("agentops.task.output", "agentops.entity.output"):
        world = World()
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": "Hi"}]),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "content": "Hello"}]),
            "gen_ai.response.finish_reasons": '["stop"]',
        }
        world.span("chat", attributes, trace=TRACE)
        world.span("reward.task", {key: json.dumps({"type": "reward", "value": 0.25})}, trace=TRACE)
        world.span("other.task", {key: json.dumps({"type": "reward", "value": None})}, trace=TRACE)
        (episode,) = world.convert().episodes.to_dicts()
        assert episode["reward"] == 0.25
