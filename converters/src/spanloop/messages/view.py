"""One decoded message, in OpenTelemetry's form or as chat APIs and frameworks spell it → ``Message``."""

from json import JSONEncoder
from typing import Final, cast

import msgspec

from . import chat_forms
from .codec import MalformedMessagesError, dump, parse_json
from .hosted_tools import hosted_answer, hosted_call
from .model import Message, ToolCall, ToolResponse, digest
from .unfinished import UNFINISHED, is_unfinished

REDACTED_MARKERS: Final = ("__REDACTED__", "[REDACTED]", "<REDACTED>")
_SORTED: Final = JSONEncoder(sort_keys=True)
_ENCODE_SORTED: Final = msgspec.json.Encoder(order="deterministic").encode
_KNOWN_FORMS: Final = frozenset({"content", "tool_calls", "function_call", "lc", "data", "message"})
_BESIDE_PARTS: Final = ("tool_calls", "tool_call_id", "function_call")
_KNOWN_TYPES: Final = frozenset({"function_call", "function_call_output", "reasoning"})

Fields = dict[str, object]


def message_fields(item: object) -> tuple[Fields, str, list[object]]:
    """A message's fields, its role and its parts, of which some may still be spelled otherwise.

    Raises:
        MalformedMessagesError: When it is none.
    """
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a message object, got {type(item).__name__}")
    fields = cast("Fields", item)
    if ("parts" not in fields and _is_known_form(fields)) or any(map(fields.get, _BESIDE_PARTS)):
        fields = chat_forms.message(fields)
    role, parts = fields.get("role"), fields.get("parts", [])
    if not isinstance(role, str) or not isinstance(parts, list):
        raise MalformedMessagesError("expected a message with a text 'role' and a list 'parts'")
    return fields, chat_forms.ROLES.get(role.lower(), role), cast("list[object]", parts)


def system_fields(text: str) -> Fields:
    """The system message that ``gen_ai.system_instructions`` (a list of parts, or plain text) stands for.

    Raises:
        MalformedMessagesError: When the text is the beginning of a list.
    """
    try:
        found = parse_json(text)
        found = parse_json(found) if isinstance(found, str) and found[:1] in {"[", "{"} else found
    except MalformedMessagesError as error:
        if is_unfinished(text):
            raise MalformedMessagesError(f"gen_ai.system_instructions: {error}") from error
        found = text
    parts = cast("list[object]", found) if isinstance(found, list) else [{"type": "text", "content": text}]
    return {"role": "system", "parts": parts}


def _is_known_form(fields: Fields) -> bool:
    return not _KNOWN_FORMS.isdisjoint(fields) or fields.get("type") in _KNOWN_TYPES


def view_message(fields: Fields, role: str, parts: list[object], json: str) -> Message:
    """The message of ``message_fields``.

    Args:
        fields: Of the message.
        role: In OpenTelemetry's words.
        parts: Its parts.
        json: The JSON of ``fields``.

    Raises:
        MalformedMessagesError: When a part holds text that was cut within a message list.
    """
    before = fields
    texts: list[str] = []
    calls: list[ToolCall] = []
    responses: list[ToolResponse] = []
    seen: list[str] = [role]
    for position, part in enumerate(parts):
        found: Fields = part if isinstance(part, dict) else {"type": "text", "content": part}  # pyright: ignore[reportUnknownVariableType]
        kind = found.get("type")
        if kind not in chat_forms.CANONICAL_PARTS or "text" in found:
            known = chat_forms.part(found)
            if kind == UNFINISHED:
                raise _unfinished_error(found)
            if known is not found:
                found = cast("Fields", known)
                kind = found.get("type")
                parts, fields = _replaced(fields, parts, position, found)
        if kind == "text":
            texts.append(_text(found.get("content", "")))
        elif kind == "tool_call":
            call, arguments = _tool_call(found)
            if arguments and isinstance(found.get("arguments"), str):
                parts, fields = _replaced(fields, parts, position, {**found, "arguments": arguments})
            calls.append(call)
            seen.append(f"call:{call.name}:{_canonical(arguments, call.arguments)}")
        elif kind == "tool_call_response":
            answer = found.get("response", found.get("result"))
            # Bedrock's and Strands' answers are lists of text blocks.
            answer = chat_forms.plain(cast("object", answer)) if isinstance(answer, list) else answer
            response = ToolResponse(_text(found.get("id")), _text(answer))
            responses.append(response)
            seen.append(f"response:{response.content}")
        else:
            seen.append(_SORTED.encode(found))
            if kind != "reasoning":
                _add_hosted(found, calls, responses)
    text = texts[0] if len(texts) == 1 else "".join(texts)
    seen.append(f"text:{text.strip()}")
    whole = json if fields is before else dump(fields)
    is_redacted = "REDACTED" in whole and any(map(_is_redacted, (text, *(response.content for response in responses))))
    reason = fields.get("finish_reason")
    told = (tuple(calls), tuple(responses), _text(reason) if reason else "", whole, digest(seen), is_redacted)
    return Message(role, text, *told)


def _add_hosted(part: Fields, calls: list[ToolCall], responses: list[ToolResponse]) -> None:
    """Add the call and the answer that a part of a provider's own type stands for."""
    if call := hosted_call(part):
        calls.append(call)
    if answer := hosted_answer(part):
        responses.append(answer.response)


def _unfinished_error(part: Fields) -> MalformedMessagesError:
    text = str(part.get("content"))
    where = f"{part.get('attribute')}: expected messages as JSON, got {len(text)} characters that stop within a value"
    error = MalformedMessagesError(f"{where} (cut at an attribute limit?): {text[:80]!r}")
    error.cut_text = text
    return error


def _replaced(fields: Fields, parts: list[object], position: int, part: Fields) -> tuple[list[object], Fields]:
    """Copies with ``part`` in the place of what was there."""
    changed = [*parts[:position], part, *parts[position + 1 :]]
    return changed, {**fields, "parts": changed}


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value)


def _tool_call(part: Fields) -> tuple[ToolCall, Fields | None]:
    """The call, and its arguments as an object; None where they are none."""
    arguments = part.get("arguments")
    name, identity = _text(part.get("name")), _text(part.get("id"))
    if arguments is None or arguments == "":
        return ToolCall(identity, name, "{}", is_valid=True), {}
    if isinstance(arguments, dict):
        return ToolCall(identity, name, dump(cast("Fields", arguments)), is_valid=True), cast("Fields", arguments)
    if not isinstance(arguments, str):
        return ToolCall(identity, name, dump(arguments), is_valid=False), None
    try:
        found = parse_json(arguments)
    except MalformedMessagesError:
        found = None
    if not isinstance(found, dict):
        return ToolCall(identity, name, arguments, is_valid=False), None
    return ToolCall(identity, name, dump(cast("Fields", found)), is_valid=True), cast("Fields", found)


def _canonical(arguments: Fields | None, json: str) -> str:
    """The same text for equal arguments, whatever the order of their keys in ``json``; ``json`` where they are none."""
    if arguments is None:
        return json
    if not arguments:
        return "{}"
    if len(arguments) == 1 and not isinstance(next(iter(arguments.values())), (dict, list)):
        return json
    try:
        return _ENCODE_SORTED(arguments).decode()
    except (UnicodeEncodeError, TypeError):
        return _SORTED.encode(arguments)


def _is_redacted(text: str) -> bool:
    return any(marker in text for marker in REDACTED_MARKERS)
