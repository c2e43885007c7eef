"""Trees of ``test_messages_adapter.py``: numbered messages, and tool calls as child spans."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .tree import MESSAGES, Tree, TreeSpan

_SCHEMA: Final = json.dumps({"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]})
_ARGUMENTS: Final = json.dumps({"date": "2026-05-04"})
_REQUEST: Final = {
    "gen_ai.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "gpt-mini",
    "gen_ai.request.streaming": False,
}
_OFFER: Final = {
    **_REQUEST,
    "gen_ai.request.functions.0.name": "find_rooms",
    "gen_ai.request.functions.0.description": "List free rooms.",
    "gen_ai.request.functions.0.parameters": _SCHEMA,
}


def chat(
    span_id: str,
    start_s: float,
    prompt: Sequence[Mapping[str, Any]],
    completion: str | None,
    *,
    reply: str,
    request: Mapping[str, Any] = _REQUEST,
) -> TreeSpan:
    """A model call with numbered messages and no ids; a tool call of its answer is a child span of AgentOps."""
    attributes: dict[str, Any] = {
        **request,
        "gen_ai.response.id": reply,
        "gen_ai.response.model": "gpt-mini-1",
        "gen_ai.usage.prompt_tokens": 300,
        "gen_ai.usage.completion_tokens": 50,
        "gen_ai.usage.total_tokens": 350,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls" if completion is None else "stop",
    }
    for number, message in enumerate(prompt):
        attributes |= {f"gen_ai.prompt.{number}.{key}": value for key, value in message.items()}
    if completion is not None:
        attributes["gen_ai.completion.0.content"] = completion
    return TreeSpan(span_id, None, "openai.chat.completion", start_s, start_s + 1, attributes)


def tool_call(span_id: str, parent: str, start_s: float, call_id: str) -> TreeSpan:
    """A tool call that AgentOps read from an answer."""
    attributes = {
        "tool.name": "find_rooms",
        "tool.parameters": _ARGUMENTS,
        "tool.call.id": call_id,
        "tool.call.type": "function",
    }
    return TreeSpan(span_id, parent, "tool_call.find_rooms", start_s, start_s + 0.1, attributes)


_OPENING: Final = (
    {"role": "system", "content": "You book meeting rooms."},
    {"role": "user", "content": "Book a room for 4 May."},
)
_ROOMS: Final = '{"rooms": [{"id": "Vega", "free": true}]}'


def _asked(*call_ids: str) -> dict[str, Any]:
    """The assistant's message with tool calls, in the next prompt."""
    message: dict[str, Any] = {"role": "assistant"}
    for number, call_id in enumerate(call_ids):
        of_call = {"id": call_id, "name": "find_rooms", "arguments": _ARGUMENTS}
        message |= {f"tool_calls.{number}.{key}": value for key, value in of_call.items()}
    return message


def _result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": _ROOMS, "tool_call_id": call_id}


TREES: Final = (
    Tree(
        "a tool call as a child span, its result in the next prompt without the call, and a judge",
        MESSAGES,
        (
            tool_call("tool-1", "llm-1", 0.5, "call_a"),
            chat("llm-1", 0.0, _OPENING, None, reply="chatcmpl-1", request=_OFFER),
            chat("llm-2", 2.0, (*_OPENING, _result("call_a")), "room: none", reply="chatcmpl-2", request={}),
            chat(
                "llm-3",
                4.0,
                ({"role": "system", "content": "You grade."}, {"role": "user", "content": "The answer: room: none"}),
                '{"score": 1}',
                reply="chatcmpl-3",
                request={},
            ),
        ),
    ),
    Tree(
        "two tool calls as child spans, both in the next prompt",
        MESSAGES,
        (
            tool_call("tool-1", "llm-1", 0.5, "call_a"),
            tool_call("tool-2", "llm-1", 0.6, "call_b"),
            chat("llm-1", 0.0, _OPENING, None, reply="chatcmpl-1", request=_OFFER),
            chat(
                "llm-2",
                2.0,
                (*_OPENING, _asked("call_a", "call_b"), _result("call_a"), _result("call_b")),
                "Take Vega.",
                reply="chatcmpl-2",
            ),
        ),
    ),
)
