"""Gemini's generateContent."""

from collections.abc import Iterable
from typing import Any

from .script import Conversation, Reply, digest


def read(body: dict[str, Any]) -> Conversation:
    """Read a request."""
    conversation = Conversation()
    for tool in body.get("tools") or ():
        for function in tool.get("functionDeclarations") or ():
            schema: dict[str, Any] = function.get("parameters") or function.get("parametersJsonSchema") or {}
            conversation.tools[function["name"]] = schema
    for content in body["contents"]:
        for part in content["parts"]:
            if "functionResponse" in part:
                conversation.results += 1
            elif "functionCall" in part:
                conversation.called.append(part["functionCall"]["name"])
            elif content.get("role") != "model":
                conversation.texts.append(part.get("text", ""))
    return conversation


def answer(body: dict[str, Any], reply: Reply) -> dict[str, Any]:
    """The complete response."""
    calls: list[dict[str, Any]] = [
        {"functionCall": {"id": f"call_{digest(body['contents'], place)}", "name": call.name, "args": call.arguments}}
        for place, call in enumerate(reply.calls)
    ]
    content = {"role": "model", "parts": calls or [{"text": reply.text}]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 30},
        "modelVersion": "gemini-scripted",
        "responseId": digest(body["contents"]),
    }


def stream(body: dict[str, Any], reply: Reply) -> Iterable[tuple[str, Any]]:
    """One chunk, which is the complete response."""
    yield "", answer(body, reply)
