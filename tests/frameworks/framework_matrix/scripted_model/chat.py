"""OpenAI's chat completions, which Mistral and most others speak too."""

import json
import time
from collections.abc import Iterable
from typing import Any

from .script import Conversation, Reply, digest
from .text_protocols import read_calls, read_observations

USAGE = {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30}


def texts(content: Any) -> list[str]:
    """The texts of a message's content: a string, or a list of parts."""
    if isinstance(content, str):
        return [content]
    parts: list[dict[str, Any]] = content or []
    return [str(part.get("text", "")) for part in parts]


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    conversation = Conversation(is_stream=bool(body.get("stream")), model=body.get("model", ""))
    answer_format: dict[str, Any] = body.get("response_format") or {}
    conversation.has_schema = answer_format.get("type") == "json_schema"
    for tool in body.get("tools") or ():
        function = tool["function"]
        conversation.tools[function["name"]] = function.get("parameters") or {}
    for message in body["messages"]:
        if message["role"] in {"tool", "function"}:
            conversation.results += 1
        elif message["role"] == "assistant":
            conversation.called += [call["function"]["name"] for call in message.get("tool_calls") or ()]
            conversation.called += read_calls(texts(message.get("content")))
        else:
            conversation.texts += texts(message.get("content"))
            if message["role"] == "user":
                conversation.results += read_observations(texts(message.get("content")))
    return conversation


def _message(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{digest(body['messages'], place)}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for place, call in enumerate(reply.calls)
    ]
    return {"role": "assistant", "content": reply.text or None} | ({"tool_calls": calls} if calls else {})


def _envelope(body: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{digest(body['messages'])}",
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model", ""),
    }


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    reason = "tool_calls" if reply.calls else "stop"
    choice = {"index": 0, "message": _message(body, reply), "finish_reason": reason, "logprobs": None}
    return _envelope(body, "chat.completion") | {"choices": [choice], "usage": USAGE}


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """The chunks of a streamed response, each with the name of its event."""
    message = _message(body, reply)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": word} for word in reply.text.split(" ") if word] if reply.text else []
    deltas[2:] = [{"content": f" {delta['content']}"} for delta in deltas[2:]]
    for place, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        if body.get("model", "").startswith("mistral"):  # it sends calls undivided
            deltas.append({"tool_calls": [call | {"index": place}]})
            continue
        first = call | {"index": place, "function": {"name": call["function"]["name"], "arguments": ""}}
        deltas.append({"tool_calls": [first]})
        halves = arguments[:8], arguments[8:]
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": half}}]} for half in halves]
    envelope = _envelope(body, "chat.completion.chunk")
    for delta in deltas:
        yield "", envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if reply.calls else "stop"
    yield "", envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": None}
    yield "", envelope | {"choices": [], "usage": USAGE}
    yield "", "[DONE]"
