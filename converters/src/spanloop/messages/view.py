"""One decoded message, in OpenTelemetry's form or as chat APIs and frameworks spell it → ``Message``."""

from json import JSONEncoder
from operator import is_not
from typing import Final, NamedTuple, cast

import msgspec

from . import chat_forms
from .codec import MalformedMessagesError, dump, parse_json, parse_json_or_none
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


def read_message(item: object, known: dict[str, Message]) -> Message:
    """The message of a decoded object, of which parts may be spelled otherwise; one with the same JSON is the same.

    Args:
        item: Any JSON value; it is not changed.
        known: The messages that were read, by their JSON; a new one is added.

    Raises:
        MalformedMessagesError: When it is no message, or a part holds text that was cut within a message list.
    """
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a message object, got {type(item).__name__}")
    fields: Fields = item  # pyright: ignore[reportUnknownVariableType]
    if ("parts" not in fields and _is_known_form(fields)) or any(map(fields.get, _BESIDE_PARTS)):
        fields = chat_forms.message(fields)
    role, parts = fields.get("role"), fields.get("parts", [])
    if not isinstance(role, str) or not isinstance(parts, list):
        raise MalformedMessagesError("expected a message with a text 'role' and a list 'parts'")
    role = chat_forms.ROLES.get(role.lower(), role)
    content = _Content([], [], [], [role])
    read = [_read_part(part, content) for part in parts]  # pyright: ignore[reportUnknownVariableType]
    if any(map(is_not, read, parts)):  # pyright: ignore[reportUnknownArgumentType]
        fields = {**fields, "parts": read}
    json = dump(fields)
    return known.get(json) or known.setdefault(json, _message(fields, role, content, json))


class _Content(NamedTuple):
    """Content of the parts of a message."""

    texts: list[str]
    calls: list[ToolCall]
    responses: list[ToolResponse]
    seen: list[str]
    """The pieces of the message's digest."""


def _message(fields: Fields, role: str, content: _Content, json: str) -> Message:
    texts, calls, responses, seen = content
    text = texts[0] if len(texts) == 1 else "".join(texts)
    seen.append(f"text:{text.strip()}")
    is_redacted = "REDACTED" in json and any(map(_is_redacted, (text, *(response.content for response in responses))))
    reason = fields.get("finish_reason")
    return Message(
        role,
        text,
        tuple(calls),
        tuple(responses),
        _text(reason) if reason else "",
        json,
        digest(seen),
        is_redacted,
    )


def _read_part(item: object, content: _Content) -> object:
    """Add a part to ``content``; the part in OpenTelemetry's form, ``item`` itself where it is in that form."""
    part: Fields = item if isinstance(item, dict) else {"type": "text", "content": item}  # pyright: ignore[reportUnknownVariableType]
    kind = part.get("type")
    if kind not in chat_forms.CANONICAL_PARTS or "text" in part:
        canonical = chat_forms.part(part)
        if kind == UNFINISHED:
            raise _unfinished_error(part)
        if canonical is not part:
            item = part = cast("Fields", canonical)
            kind = part.get("type")
    if kind == "text":
        content.texts.append(_text(part.get("content", "")))
    elif kind == "tool_call":
        call, arguments = _tool_call(part)
        if arguments and isinstance(part.get("arguments"), str):
            item = {**part, "arguments": arguments}
        content.calls.append(call)
        content.seen.append(f"call:{call.name}:{_canonical(arguments, call.arguments)}")
    elif kind == "tool_call_response":
        answer = part.get("response", part.get("result"))
        # Bedrock's and Strands' answers are lists of text blocks.
        answer = chat_forms.plain(cast("object", answer)) if isinstance(answer, list) else answer
        response = ToolResponse(_text(part.get("id")), _text(answer))
        content.responses.append(response)
        content.seen.append(f"response:{response.content}")
    else:
        content.seen.append(_SORTED.encode(part))
        if kind != "reasoning":
            _add_hosted(part, content)
    return item


def system_fields(text: str) -> Fields:
    """The system message that ``gen_ai.system_instructions`` (a list of parts, or plain text) stands for.

    Raises:
        MalformedMessagesError: When the text is the beginning of a list.
    """
    try:
        value = parse_json(text)
        value = parse_json(value) if isinstance(value, str) and value[:1] in {"[", "{"} else value
    except MalformedMessagesError as error:
        if is_unfinished(text):
            raise MalformedMessagesError(f"gen_ai.system_instructions: {error}") from error
        value = text
    parts = cast("list[object]", value) if isinstance(value, list) else [{"type": "text", "content": text}]
    return {"role": "system", "parts": parts}


def _is_known_form(fields: Fields) -> bool:
    return not _KNOWN_FORMS.isdisjoint(fields) or fields.get("type") in _KNOWN_TYPES


def _add_hosted(part: Fields, content: _Content) -> None:
    """Add the call and the answer that a part of a provider's own type stands for."""
    if call := hosted_call(part):
        content.calls.append(call)
    if answer := hosted_answer(part):
        content.responses.append(answer.response)


def _unfinished_error(part: Fields) -> MalformedMessagesError:
    text = str(part.get("content"))
    where = f"{part.get('attribute')}: expected messages as JSON, got {len(text)} characters that stop within a value"
    error = MalformedMessagesError(f"{where} (cut at an attribute limit?): {text[:80]!r}")
    error.cut_text = text
    return error


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
    decoded = parse_json_or_none(arguments) if isinstance(arguments, str) else arguments
    if isinstance(decoded, dict):
        return ToolCall(identity, name, dump(cast("Fields", decoded)), is_valid=True), cast("Fields", decoded)
    return ToolCall(identity, name, arguments if isinstance(arguments, str) else dump(arguments), is_valid=False), None


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
