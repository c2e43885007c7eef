"""Tools that the provider runs: call and result stand in one answer, in parts of the provider's own type."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from .converters_world import World, trace_id

TEXT = {"type": "text", "text": "Done."}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}


def converted(attributes: dict[str, Any], name: str = "chat") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    world = World()
    world.span(name, attributes, trace=trace_id("t"))
    result = world.convert()
    (step,) = result.transitions.to_dicts()
    return step, result.failures.to_dicts()


def otel(parts: Sequence[object], reason: str = "stop") -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Look it up."}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": list(parts), "finish_reason": reason}]),
        "gen_ai.response.finish_reasons": [reason],
        "gen_ai.response.id": "resp_1",
    }


def openinference(response: object) -> dict[str, Any]:
    request = {"input": "Look it up.", "model": "tiny"}
    return {
        "openinference.span.kind": "LLM",
        "llm.model_name": "tiny",
        "input.value": json.dumps(request),
        "output.value": json.dumps(response),
    }


def langfuse(answer: object) -> dict[str, Any]:
    return {
        "langfuse.observation.type": "generation",
        "langfuse.observation.input": json.dumps([{"role": "user", "content": "Look it up."}]),
        "langfuse.observation.output": json.dumps(answer),
    }


def responses(*items: object) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "output": list(items)}


HOSTED: dict[str, tuple[dict[str, Any], str, str]] = {
    "openai image": (
        openinference(responses({"type": "image_generation_call", "id": "i", "status": "completed"}, MESSAGE)),
        "image_generation",
        "ok",
    ),
    "openai list of items": (
        langfuse([{"type": "mcp_call", "id": "m", "name": "read", "arguments": "{}", "output": "Two."}, MESSAGE]),
        "read",
        "ok",
    ),
    "openai failed search": (
        langfuse(responses({"type": "web_search_call", "id": "w", "status": "failed"}, MESSAGE)),
        "web_search",
        "error",
    ),
    "anthropic mcp": (
        otel(
            [
                {"type": "mcp_tool_use", "id": "m", "name": "read", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": True, "content": [{"type": "text"}]},
                {"type": "text", "content": "Done."},
            ]
        ),
        "read",
        "error",
    ),
    "otel server tool": (
        otel(
            [
                {"type": "server_tool_call", "id": "s", "name": "search", "server_tool_call": {"type": "search"}},
                {"type": "server_tool_call_response", "id": "s", "server_tool_call_response": {"type": "search"}},
                {"type": "text", "content": "Done."},
            ]
        ),
        "search",
        "ok",
    ),
    "gemini code": (
        otel(
            [
                {"executable_code": {"language": "PYTHON", "code": "1/0"}},
                {"code_execution_result": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
                {"type": "text", "content": "Done."},
            ]
        ),
        "code_execution",
        "error",
    ),
    "canonical parts": (
        otel(
            [
                {"type": "tool_call", "id": "c", "name": "read", "arguments": {}},
                {"type": "tool_call_response", "id": "c", "response": "HTTP 503", "is_error": True},
                {"type": "text", "content": "Done."},
            ]
        ),
        "read",
        "error",
    ),
}


@pytest.mark.parametrize("case", HOSTED)
def test_a_hosted_call_has_its_result_in_the_answer_and_ends_the_turn(case: str) -> None:
    attributes, name, status = HOSTED[case]
    step, failures = converted(attributes)
    (result,) = json.loads(step["tool_results"])
    assert (result["name"], result["status"]) == (name, status)
    assert (step["finish_reason"] in {"stop", ""}, step["is_terminated"], step["is_truncated"]) == (True, True, False)
    assert "Done." in step["action"]
    assert [failure["is_recovered"] for failure in failures] in ([True], []) if status == "error" else not failures


@pytest.mark.parametrize("kind", ["mcp_approval_request", "mcp_list_tools", "shell_call", "a_later_call"])
def test_an_unknown_item_stays_a_part(kind: str) -> None:
    item = {"type": kind, "id": "x", "detail": {"a": [1, 2]}}
    for attributes in (openinference(responses(item, MESSAGE)), langfuse(responses(item, MESSAGE))):
        step, _ = converted(attributes)
        assert item in json.loads(step["action"])["parts"]


def test_numbered_messages_do_not_hide_hosted_calls_of_the_response() -> None:
    item = {"type": "code_interpreter_call", "id": "c", "code": "6*7", "outputs": [{"type": "logs", "logs": "42"}]}
    numbered = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Done."}
    step, _ = converted({**openinference(responses(item, MESSAGE)), **numbered})
    assert item in json.loads(step["action"])["parts"]


def test_a_custom_tool_call_waits_for_its_output() -> None:
    call = {"type": "custom_tool_call", "id": "ct", "call_id": "k", "name": "sql", "input": "SELECT 1"}
    output = {"type": "custom_tool_call_output", "call_id": "k", "output": "1"}
    asked = {"role": "user", "content": "One?"}
    world = World()
    for history, answer in (([asked], [call]), ([asked, call, output], [MESSAGE])):
        attributes = openinference(responses(*answer))
        attributes["input.value"] = json.dumps({"input": history, "model": "tiny"})
        world.span("response", attributes, trace=trace_id("t"))
    first, last = world.convert().transitions.sort("step").to_dicts()
    (result,) = json.loads(first["tool_results"])
    assert (result["tool_call_id"], result["name"], result["content"]) == ("k", "sql", "1")
    assert call in json.loads(first["action"])["parts"]
    assert (first["untrainable_reason"], last["is_terminated"]) == ("", True)


def test_a_call_for_the_client_beside_a_hosted_one_still_waits() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "tool_call", "id": "h", "name": "read", "arguments": {}},
        {"type": "tool_call_response", "id": "h", "response": "Two."},
        {"type": "tool_call", "id": "c", "name": "save", "arguments": {}},
    ]
    step, _ = converted(otel(parts))
    assert (step["finish_reason"], step["is_terminated"]) == ("tool_call", False)
