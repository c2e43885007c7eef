"""Anthropic's messages."""

import json
from collections.abc import Iterable
from typing import Any

from .chat import texts
from .script import Conversation, Reply, digest


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    conversation = Conversation(is_stream=bool(body.get("stream")), model=body.get("model", ""))
    for tool in body.get("tools") or ():
        conversation.tools[tool["name"]] = tool.get("input_schema") or {}
    for message in body["messages"]:
        content: Any = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "tool_result":
                conversation.results += 1
            elif part["type"] == "tool_use":
                conversation.called.append(part["name"])
            elif message["role"] == "user":
                conversation.texts += texts([part])
    return conversation


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    calls: list[dict[str, Any]] = [
        {
            "type": "tool_use",
            "id": f"toolu_{digest(body['messages'], place)}",
            "name": call.name,
            "input": call.arguments,
        }
        for place, call in enumerate(reply.calls)
    ]
    return {
        "id": f"msg_{digest(body['messages'])}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", ""),
        "content": calls or [{"type": "text", "text": reply.text}],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 10},
    }


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """The events of a streamed response, each with its name."""
    complete = answer(body, reply)
    yield _event("message_start", message=complete | {"content": [], "stop_reason": None})
    for place, block in enumerate(complete["content"]):
        if block["type"] == "tool_use":
            start, delta = (
                block | {"input": {}},
                {"type": "input_json_delta", "partial_json": json.dumps(block["input"])},
            )
        else:
            start, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        yield _event("content_block_start", index=place, content_block=start)
        yield _event("content_block_delta", index=place, delta=delta)
        yield _event("content_block_stop", index=place)
    end = {"stop_reason": complete["stop_reason"], "stop_sequence": None}
    yield _event("message_delta", delta=end, usage={"output_tokens": 10})
    yield _event("message_stop")


def _event(name: str, **values: Any) -> tuple[str, Any]:
    return name, {"type": name, **values}
