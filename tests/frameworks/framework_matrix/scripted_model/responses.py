"""OpenAI's Responses API."""

import json
import time
from collections.abc import Iterable
from typing import Any

from .chat import texts
from .script import Conversation, Reply, digest

USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 10,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 30,
}


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    conversation = Conversation(is_stream=bool(body.get("stream")), model=body.get("model", ""))
    for tool in body.get("tools") or ():
        if tool["type"] == "function":
            conversation.tools[tool["name"]] = tool.get("parameters") or {}
    conversation.texts += texts(body.get("instructions"))
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            conversation.results += 1
        elif kind == "function_call":
            conversation.called.append(item["name"])
        elif kind == "message" and item["role"] != "assistant":
            conversation.texts += texts(item["content"])
    return conversation


def _items(body: dict[str, Any], reply: Reply) -> list[dict[str, Any]]:
    if reply.calls:
        return [
            {
                "type": "function_call",
                "id": f"fc_{digest(body['input'], place)}",
                "call_id": f"call_{digest(body['input'], place)}",
                "name": call.name,
                "arguments": json.dumps(call.arguments),
                "status": "completed",
            }
            for place, call in enumerate(reply.calls)
        ]
    content: list[dict[str, Any]] = [{"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}]
    message = {"type": "message", "id": f"msg_{digest(body['input'])}", "role": "assistant", "status": "completed"}
    return [message | {"content": content}]


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    return {
        "id": f"resp_{digest(body['input'], body.get('instructions'))}",
        "object": "response",
        "created_at": time.time(),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body.get("model", ""),
        "output": _items(body, reply),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "usage": USAGE,
    }


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """The events of a streamed response, each with its name."""
    complete = answer(body, reply)
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": complete | {"status": "in_progress", "output": [], "usage": None}}
    ]
    for place, item in enumerate(complete["output"]):
        events += _item_events(place, item)
    events.append({"type": "response.completed", "response": complete})
    for number, event in enumerate(events):
        yield event["type"], event | {"sequence_number": number}


def _item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    at: dict[str, Any] = {"output_index": place, "item_id": item["id"]}
    added: dict[str, Any] = {"type": "response.output_item.added", "output_index": place}
    done = {"type": "response.output_item.done", "output_index": place, "item": item}
    if item["type"] == "function_call":
        delta = at | {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
        end = {"type": "response.function_call_arguments.done", "arguments": item["arguments"], "name": item["name"]}
        return [added | {"item": item | {"arguments": "", "status": "in_progress"}}, delta, at | end, done]
    part = item["content"][0]
    at["content_index"] = 0
    return [
        added | {"item": item | {"content": [], "status": "in_progress"}},
        at | {"type": "response.content_part.added", "part": part | {"text": ""}},
        at | {"type": "response.output_text.delta", "delta": part["text"], "logprobs": []},
        at | {"type": "response.output_text.done", "text": part["text"], "logprobs": []},
        at | {"type": "response.content_part.done", "part": part},
        done,
    ]
