"""Messages in one form, whatever a client wrote them as: texts, and calls with their arguments as values."""

from collections.abc import Mapping
from typing import Any, Final

from ..client.json_codec import as_list, as_object, decode_json

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})


def text_of(content: object) -> str:
    """Return the text of a message's content: a string, or parts; empty for none."""
    if isinstance(content, str):
        return content
    parts = [as_object(part) for part in as_list(content)]
    return "".join(str(part.get("text") or "") for part in parts if part.get("type") in _TEXT_TYPES)


def canonical_message(message: object) -> list[object]:
    """Return what two forms of one message share. Reasoning is no part of it: clients send the newest alone."""
    fields = as_object(message)
    if not fields:
        return [message]
    others = [part for part in as_list(fields.get("content")) if as_object(part).get("type") not in _TEXT_TYPES]
    identity = [fields.get(name) for name in ("role", "name", "tool_call_id")]
    return [*identity, text_of(fields.get("content")), others, canonical_calls(fields)]


def canonical_calls(message: Mapping[str, Any]) -> list[object]:
    """Return the id, name and arguments of each call."""
    calls: list[object] = []
    for call in as_list(message.get("tool_calls")):
        function = as_object(as_object(call).get("function"))
        calls.append([as_object(call).get("id"), function.get("name"), _value(function.get("arguments"))])
    return calls


def _value(arguments: object) -> object:
    """Return a call's arguments as a value, which some APIs write again."""
    try:
        return decode_json(arguments.encode()) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments
