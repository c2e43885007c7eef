"""The messages that a client receives, put together from a whole response or from the chunks of a stream."""

from collections.abc import Mapping
from typing import Any

from .conversations import answer_digest
from .received_answer import reasoning_of


class AnswerMessages:
    """Collects the message of each choice of one response."""

    def __init__(self) -> None:
        self._messages: dict[int, dict[str, Any]] = {}

    def add(self, document: Mapping[str, Any]) -> None:
        """Add a whole response or one chunk of a stream."""
        choices: list[dict[str, Any]] = document.get("choices") or []
        for choice in choices:
            message: dict[str, Any] = choice.get("message") or choice.get("delta") or {}
            content: Any = message.get("content")
            calls: list[dict[str, Any]] = message.get("tool_calls") or []
            collected = self._messages.setdefault(
                int(choice.get("index") or 0), {"content": [], "calls": {}, "has_reasoning": False}
            )
            collected["has_reasoning"] = collected["has_reasoning"] or bool(reasoning_of(message))
            if content:
                collected["content"].append(str(content))
            for position, call in enumerate(calls):
                _add_call(collected["calls"].setdefault(call.get("index", position), {}), call)

    def with_reasoning(self) -> set[int]:
        """Return the choices that have reasoning."""
        return {index for index, collected in self._messages.items() if collected["has_reasoning"]}

    def digests(self) -> dict[int, bytes]:
        """Return the digest of each choice's message."""
        return {index: answer_digest(_message(collected)) for index, collected in self._messages.items()}


def _add_call(collected: dict[str, str], call: Mapping[str, Any]) -> None:
    function: dict[str, Any] = call.get("function") or {}
    collected["id"] = collected.get("id") or str(call.get("id") or "")
    collected["name"] = collected.get("name", "") + str(function.get("name") or "")
    collected["arguments"] = collected.get("arguments", "") + str(function.get("arguments") or "")


def _message(collected: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {"id": call["id"], "function": {"name": call["name"], "arguments": call["arguments"]}}
        for _, call in sorted(collected["calls"].items())
    ]
    return {"content": "".join(collected["content"]), "tool_calls": calls}
