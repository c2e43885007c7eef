"""A conversation gives the same spans in each supported format; other content is rejected with its place."""

import json
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.importing.conversations import Conversation, ConversationReader
from spanloop.importing.report import BadItemError

Json = dict[str, Any]
ARGUMENTS = {"city": "Paris"}
LINES: dict[str, Json] = {
    "OpenAI, arguments as text": {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": None,
                "weight": 1,
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": json.dumps(ARGUMENTS)}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": "57F"},
            {"role": "assistant", "content": "a"},
        ],
        "reward": 0.5,
    },
    "OpenAI, arguments as an object": {
        "traj": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ARGUMENTS}}]},
            {"role": "tool", "tool_call_id": "c", "content": "57F"},
            {"role": "assistant", "content": "a"},
        ],
        "info": {"reward": 0.5},
    },
    "Anthropic": {
        "system": "s",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": ARGUMENTS}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "57F"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        ],
        "reward_info": {"reward": 0.5},
    },
    "ShareGPT": {
        "system": "s",
        "conversations": [
            {"from": "human", "value": "q"},
            {"from": "function_call", "value": json.dumps({"name": "f", "arguments": ARGUMENTS})},
            {"from": "observation", "value": "57F"},
            {"from": "gpt", "value": "a"},
        ],
        "reward": 0.5,
    },
}


def read(line: Json) -> Conversation:
    return ConversationReader().read(line, default_time_ns=1)


def attributes(span: Span) -> dict[str, str]:
    return {item.key: item.value.string_value for item in span.attributes}


@pytest.mark.parametrize("spelling", LINES)
def test_a_conversation_gives_the_same_spans_in_every_format(spelling: str) -> None:
    conversation = read(LINES[spelling])
    assert conversation.score is not None
    assert conversation.score.value == 0.5
    (scope,) = conversation.request.resource_spans[0].scope_spans
    span_attributes = [attributes(span) for span in scope.spans]
    assert [each["gen_ai.operation.name"] for each in span_attributes] == [
        "invoke_agent",
        "chat",
        "execute_tool",
        "chat",
    ]
    _, first, tool, last = span_attributes
    (output,) = json.loads(first["gen_ai.output.messages"])
    (call,) = output["parts"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("tool_call", "f", ARGUMENTS)
    assert output["finish_reason"] == "tool_call"
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.call.result"]) == ("f", "57F")
    assert tool["gen_ai.tool.call.id"] == call["id"]
    seen = json.loads(last["gen_ai.input.messages"])
    assert [message["role"] for message in seen] == ["system", "user", "assistant", "tool"]
    assert seen[3]["parts"][0]["response"] == "57F"
    assert json.loads(last["gen_ai.output.messages"])[0]["parts"] == [{"type": "text", "content": "a"}]


@pytest.mark.parametrize("spelling", LINES)
def test_another_reward_is_the_same_episode(spelling: str) -> None:
    line = json.loads(json.dumps(LINES[spelling]).replace("0.5", "1.0"))
    first, second = read(LINES[spelling]), read(line)
    assert first.request == second.request
    assert first.score is not None
    assert second.score is not None
    assert (first.score.value, second.score.value) == (0.5, 1.0)


def test_a_tool_result_marked_as_error_by_anthropic_stays_an_error() -> None:
    line = json.loads(json.dumps(LINES["Anthropic"]).replace('"content": "57F"', '"content": "57F", "is_error": true'))
    (scope,) = read(line).request.resource_spans[0].scope_spans
    seen = json.loads(attributes(scope.spans[-1])["gen_ai.input.messages"])
    assert seen[3]["parts"][0]["is_error"] is True


@pytest.mark.parametrize(
    ("turn", "where"),
    [
        ({"from": "narrator", "value": "x"}, "conversations[1].role"),
        ({"from": "gpt", "value": 5}, "conversations[1].content"),
        ("text", "conversations[1]"),
    ],
)
def test_an_invalid_turn_is_rejected_with_its_place(turn: Any, where: str) -> None:
    line = {"conversations": [{"from": "human", "value": "q"}, turn, {"from": "gpt", "value": "a"}]}
    with pytest.raises(BadItemError) as caught:
        read(line)
    assert caught.value.where.startswith(where)
