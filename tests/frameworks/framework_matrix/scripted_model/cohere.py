"""Cohere's v2 chat."""

import json
from collections.abc import Iterable
from typing import Any

from . import chat
from .script import Conversation, Reply, digest

USAGE = {"billed_units": {"input_tokens": 20, "output_tokens": 10}, "tokens": {"input_tokens": 20, "output_tokens": 10}}


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    return chat.read(body)


def _calls(body: dict[str, Any], reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{call.name}_{digest(body['messages'], place)}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for place, call in enumerate(reply.calls)
    ]


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    calls = _calls(body, reply)
    message: dict[str, Any] = {"role": "assistant"}
    message |= {"tool_calls": calls} if calls else {"content": [{"type": "text", "text": reply.text}]}
    reason = "TOOL_CALL" if calls else "COMPLETE"
    return {"id": digest(body["messages"]), "finish_reason": reason, "message": message, "usage": USAGE}


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """The events of a streamed response, each with its name."""
    start: dict[str, Any] = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    yield _event("message-start", id=digest(body["messages"]), delta={"message": start})
    calls = _calls(body, reply)
    for place, call in enumerate(calls):
        empty = call | {"function": {"name": call["function"]["name"], "arguments": ""}}
        yield _event("tool-call-start", index=place, delta={"message": {"tool_calls": empty}})
        part = {"function": {"arguments": call["function"]["arguments"]}}
        yield _event("tool-call-delta", index=place, delta={"message": {"tool_calls": part}})
        yield _event("tool-call-end", index=place)
    if not calls:
        yield _event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}})
        yield _event("content-delta", index=0, delta={"message": {"content": {"text": reply.text}}})
        yield _event("content-end", index=0)
    yield _event("message-end", delta={"finish_reason": "TOOL_CALL" if calls else "COMPLETE", "usage": USAGE})


def _event(name: str, **values: Any) -> tuple[str, Any]:
    return name, {"type": name, **values}
