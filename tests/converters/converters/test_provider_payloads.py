"""Requests and responses whole, in the spelling of every API that is known, and tracers read by their documentation."""

import json
from typing import Any, cast

import pytest

from spanloop.converters.dialects.provider_payloads import request_columns, response_columns
from spanloop.converters.reading.finish_reasons import canonical_finish_reason
from spanloop.messages.tool_definitions import tool_definitions

from .converters_world import World, trace_id

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL = {"type": "tool_call", "id": "c1", "name": "f", "arguments": {"city": "Paris"}}

REQUESTS: dict[str, Json] = {
    "openai": {
        "model": "m",
        "temperature": 0.2,
        "max_tokens": 9,
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"city": "Paris"}}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "57F"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
    },
    "responses": {
        "model": "m",
        "temperature": 0.2,
        "max_output_tokens": 9,
        "instructions": "s",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": {"city": "Paris"}},
            {"type": "function_call_output", "call_id": "c1", "output": "57F"},
        ],
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}],
    },
    "anthropic": {
        "model": "m",
        "temperature": 0.2,
        "max_tokens": 9,
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"city": "Paris"}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "57F"}]}],
            },
        ],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}],
    },
    "gemini": {
        "model": "m",
        "contents": [
            {"role": "user", "parts": [{"text": "q", "function_call": None}]},
            {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {"city": "Paris"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "response": "57F"}}]},
        ],
        "config": {
            "temperature": 0.2,
            "max_output_tokens": 9,
            "system_instruction": {"parts": [{"text": "s"}], "role": "user"},
            "tools": [{"function_declarations": [{"name": "f", "description": "d", "parameters": SCHEMA}]}],
        },
    },
    "bedrock": {
        "modelId": "m",
        "system": [{"text": "s"}],
        "messages": [
            {"role": "user", "content": [{"text": "q"}]},
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "c1", "name": "f", "input": {"city": "Paris"}}}],
            },
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "57F"}], "status": "success"}}],
            },
        ],
        "inferenceConfig": {"temperature": 0.2, "maxTokens": 9},
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}}]},
    },
    "genkit": {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"text": "s"}]},
            {"role": "user", "content": [{"text": "q"}]},
            {"role": "model", "content": [{"toolRequest": {"ref": "c1", "name": "f", "input": {"city": "Paris"}}}]},
            {"role": "tool", "content": [{"toolResponse": {"ref": "c1", "output": "57F"}}]},
        ],
        "config": {"temperature": 0.2, "maxOutputTokens": 9},
        "tools": [{"name": "f", "description": "d", "inputSchema": SCHEMA}],
    },
    "haystack": {
        "model": "m",
        "messages": [
            {"role": "system", "meta": {}, "content": [{"text": "s"}]},
            {"role": "user", "meta": {}, "content": [{"text": "q"}]},
            {
                "role": "assistant",
                "content": [{"tool_call": {"tool_name": "f", "arguments": {"city": "Paris"}, "id": "c1"}}],
            },
            {
                "role": "tool",
                "content": [{"tool_call_result": {"result": "57F", "origin": {"id": "c1"}, "error": False}}],
            },
        ],
        "generation_config": {"temperature": 0.2, "max_tokens": 9},
        "tools": [
            {"type": "haystack.tools.tool.Tool", "data": {"name": "f", "description": "d", "parameters": SCHEMA}}
        ],
    },
}


@pytest.mark.parametrize("spelling", REQUESTS)
def test_a_request_in_every_spelling_is_the_same(spelling: str) -> None:
    columns = request_columns(REQUESTS[spelling])
    assert columns["input_messages"] == [
        {"role": "system", "parts": [{"type": "text", "content": "s"}]},
        {"role": "user", "parts": [{"type": "text", "content": "q"}]},
        {"role": "assistant", "parts": [CALL]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "57F"}]},
    ]
    assert json.loads(str(columns["tools"])) == [{"name": "f", "description": "d", "parameters": SCHEMA}]
    assert (columns["request_model"], columns["temperature"], columns["max_tokens"]) == ("m", "0.2", "9")


OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"city": "Paris"}}}
RESPONSES: dict[str, Json] = {
    "openai": {
        "id": "r",
        "model": "m",
        "choices": [
            {
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "t", "tool_calls": [OPENAI_CALL]},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    },
    "llama_index": {
        "message": {"role": "assistant", "blocks": []},
        "raw": {
            "id": "r",
            "model": "m",
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {"content": "t", "role": "assistant", "tool_calls": [OPENAI_CALL]},
                }
            ],
            "usage": {"prompt_tokens": 5, "completion_tokens": 3},
        },
    },
    "anthropic": {
        "id": "r",
        "model": "m",
        "role": "assistant",
        "content": [
            {"type": "text", "text": "t"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"city": "Paris"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    },
    "gemini": {
        "responseId": "r",
        "modelVersion": "m",
        "candidates": [
            {
                "finishReason": "STOP",
                "content": {
                    "role": "model",
                    "parts": [{"text": "t"}, {"functionCall": {"id": "c1", "name": "f", "args": {"city": "Paris"}}}],
                },
            }
        ],
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3},
    },
    "bedrock": {
        "id": "r",
        "model": "m",
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"text": "t"},
                    {"toolUse": {"toolUseId": "c1", "name": "f", "input": {"city": "Paris"}}},
                ],
            }
        },
        "stopReason": "tool_use",
        "usage": {"inputTokens": 5, "outputTokens": 3},
    },
    "cohere": {
        "id": "r",
        "model": "m",
        "finish_reason": "TOOL_CALL",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "t"}], "tool_calls": [OPENAI_CALL]},
        "usage": {"input_tokens": 5, "output_tokens": 3},
    },
    "ollama": {
        "id": "r",
        "model": "m",
        "message": {"role": "assistant", "content": "t", "tool_calls": [OPENAI_CALL]},
        "done_reason": "tool_calls",
        "prompt_eval_count": 5,
        "eval_count": 3,
    },
    "haystack": {
        "id": "r",
        "replies": [
            {
                "role": "assistant",
                "meta": {
                    "model": "m",
                    "finish_reason": "tool_calls",
                    "usage": {"prompt_tokens": 5, "completion_tokens": 3},
                },
                "content": [
                    {"text": "t"},
                    {"tool_call": {"tool_name": "f", "arguments": {"city": "Paris"}, "id": "c1"}},
                ],
            }
        ],
    },
}


@pytest.mark.parametrize("spelling", RESPONSES)
def test_a_response_in_every_spelling_is_the_same(spelling: str) -> None:
    columns = response_columns(RESPONSES[spelling])
    (said,) = cast("list[dict[str, Any]]", columns["output_messages"])
    assert (said["role"], said["parts"]) == ("assistant", [{"type": "text", "content": "t"}, CALL])
    assert canonical_finish_reason(str(columns["finish_reasons"])) == "tool_call"
    assert (columns["response_id"], columns["response_model"]) == ("r", "m")
    assert (columns["input_tokens"], columns["output_tokens"]) == ("5", "3")


def test_tools_of_the_provider_have_a_name() -> None:
    listed: list[Any] = [
        {"type": "web_search"},
        {"google_search": {}},
        {"function_declarations": [{"name": "a"}, {"name": "b"}]},
    ]
    assert tool_definitions(listed) == [{"name": "web_search"}, {"name": "google_search"}, {"name": "a"}, {"name": "b"}]


def test_genkits_actions() -> None:
    world = World()
    trace = trace_id("t")
    flow = world.span("f", {"genkit:type": "action", "genkit:metadata:subtype": "flow"}, trace=trace)
    response = {"message": {"role": "model", "content": [{"text": "57F"}]}, "finishReason": "stop"}
    attributes = {
        "genkit:type": "action",
        "genkit:metadata:subtype": "model",
        "genkit:name": "googleai/m",
        "genkit:input": json.dumps(REQUESTS["genkit"]),
        "genkit:output": json.dumps(response | {"usage": {"inputTokens": 5, "outputTokens": 3}}),
    }
    world.span("googleai/m", attributes, trace=trace, parent=flow)
    converted = world.convert()
    row = converted.transitions.row(0, named=True)
    assert (row["model"], row["finish_reason"], row["input_tokens"]) == ("googleai/m", "stop", 5)
    assert [message["role"] for message in json.loads(row["state"])] == ["system", "user", "assistant", "tool"]
    assert converted.rejected["reason"].to_list() == ["context"]


def test_spring_ais_tools_and_prompts() -> None:
    world = World()
    trace = trace_id("t")
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": json.dumps(["q"]),
        "gen_ai.completion": json.dumps(["57F"]),
    }
    tool = {
        "gen_ai.operation.name": "framework",
        "spring.ai.kind": "tool_call",
        "spring.ai.tool.definition.name": "f",
        "spring.ai.tool.call.arguments": '{"city": "Paris"}',
        "spring.ai.tool.call.result": "57F",
    }
    client = world.span(
        "chat_client", {"gen_ai.operation.name": "framework", "spring.ai.kind": "chat_client"}, trace=trace
    )
    world.span("chat m", call, trace=trace, parent=client)
    world.span("tool_call f", tool, trace=trace, parent=client)
    converted = world.convert()
    assert converted.transitions.height == 1
    details = sorted(converted.rejected["detail"].to_list())
    assert [detail.partition(" ")[0] for detail in details] == ["other", "tool"]
    assert json.loads(converted.transitions.item(0, "action"))["parts"] == [{"type": "text", "content": "57F"}]


@pytest.mark.parametrize(
    "mark", ["langfuse.observation.type", "mlflow.spanType", "haystack.component.type", "genkit:type"]
)
def test_a_tracers_mark_on_a_call_of_another_family_hides_nothing(mark: str) -> None:
    world = World()
    attributes = {
        mark: "span",
        "llm.request.type": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "q",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "a",
    }
    world.span("call", attributes, trace=trace_id("t"))
    assert json.loads(world.convert().transitions.item(0, "action"))["parts"] == [{"type": "text", "content": "a"}]
