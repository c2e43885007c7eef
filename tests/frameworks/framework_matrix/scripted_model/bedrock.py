"""Bedrock's Converse, whose streams are AWS's binary event streams."""

import json
import zlib
from collections.abc import Iterable
from typing import Any

from .chat import texts
from .script import Conversation, Reply, digest

USAGE = {"inputTokens": 20, "outputTokens": 10, "totalTokens": 30}


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    conversation = Conversation()
    settings: dict[str, Any] = body.get("toolConfig") or {}
    for tool in settings.get("tools") or ():
        specification = tool["toolSpec"]
        conversation.tools[specification["name"]] = specification["inputSchema"]["json"]
    for message in body["messages"]:
        for part in message["content"]:
            if "toolResult" in part:
                conversation.results += 1
            elif "toolUse" in part:
                conversation.called.append(part["toolUse"]["name"])
            elif message["role"] == "user":
                conversation.texts += texts([part])
    return conversation


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    calls: list[dict[str, Any]] = [
        {
            "toolUse": {
                "toolUseId": f"tooluse_{digest(body['messages'], place)}",
                "name": call.name,
                "input": call.arguments,
            }
        }
        for place, call in enumerate(reply.calls)
    ]
    return {
        "output": {"message": {"role": "assistant", "content": calls or [{"text": reply.text}]}},
        "stopReason": "tool_use" if calls else "end_turn",
        "usage": USAGE,
        "metrics": {"latencyMs": 1},
    }


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """The events of a streamed response, each with its name."""
    complete = answer(body, reply)
    yield "messageStart", {"role": "assistant"}
    for place, block in enumerate(complete["output"]["message"]["content"]):
        delta: dict[str, Any] = block
        if "toolUse" in block:
            use = block["toolUse"]
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield "contentBlockStart", {"contentBlockIndex": place, "start": start}
            delta = {"toolUse": {"input": json.dumps(use["input"])}}
        yield "contentBlockDelta", {"contentBlockIndex": place, "delta": delta}
        yield "contentBlockStop", {"contentBlockIndex": place}
    yield "messageStop", {"stopReason": complete["stopReason"]}
    yield "metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}}


def event_stream(events: Iterable[tuple[str, Any]]) -> bytes:
    """Encode events as ``application/vnd.amazon.eventstream``."""
    return b"".join(_frame(name, json.dumps(values).encode()) for name, values in events)


def _frame(name: str, payload: bytes) -> bytes:
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    header = b"".join(_header(key, value) for key, value in headers.items())
    prelude = (len(header) + len(payload) + 16).to_bytes(4) + len(header).to_bytes(4)
    start = prelude + zlib.crc32(prelude).to_bytes(4) + header + payload
    return start + zlib.crc32(start).to_bytes(4)


def _header(key: str, value: str) -> bytes:
    is_string = b"\x07"
    return bytes([len(key)]) + key.encode() + is_string + len(value).to_bytes(2) + value.encode()
