"""Messages of plain episodes: read once, by the fast decoder, and only what the call before did not have.

Invariant: what is read here is what ``messages`` reads, to the byte. A message of text, tool calls with plain
arguments or tool responses as text is taken as it is; any other goes through ``messages`` itself.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

import msgspec

from ..messages import MalformedMessagesError, Message, digest, parse_json, read_message

ROLES: Final = frozenset({"system", "user", "assistant", "tool"})

_DECODER: Final = msgspec.json.Decoder()
_ENCODER: Final = msgspec.json.Encoder()
_COMMA: Final = re.compile(r"[ \t\n\r]*,")
_TEXT: Final = frozenset({"type", "content"})
_CALL: Final = frozenset({"type", "id", "name", "arguments"})
_RESPONSE: Final = frozenset({"type", "id", "response"})
_SCALARS: Final = frozenset({str, int, bool, type(None)})
"""Values that both encoders write alike; numbers with a point they do not."""

_FIELDS: Final = 2
"""Of a message without a finish reason: role and parts."""

_REDACTED: Final = "REDACTED"


class Call(NamedTuple):
    """One tool call of an action."""

    id: str
    name: str
    arguments: dict[str, object]


class Piece(NamedTuple):
    """A message, as far as a plain episode needs it."""

    role: str
    json: str
    """As ``Message.json``, without its finish reason."""
    action: str
    """As ``Message.json``."""
    text: str
    calls: tuple[Call, ...]
    responses: tuple[tuple[str, str], ...]
    """(tool call id, content)."""
    finish_reason: str
    digest: bytes
    """Empty where ``digest_of`` has to find it."""


class NotPlainError(Exception):
    """A message that a plain episode does not have: its trace takes the long way, and loses nothing."""


def pieces(text: str) -> list[Piece]:
    """The messages of a JSON list.

    Raises:
        NotPlainError: When something in it is unusual.
    """
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise NotPlainError from None
    if found.__class__ is not list:
        raise NotPlainError
    try:
        return [_piece(item) for item in found]
    except _NotSimpleError:
        return _exact(text)


def after(text: str, end: int) -> str:
    """The rest of a JSON list behind the element that ended at ``end``, as a list of its own.

    Raises:
        NotPlainError: When nothing follows.
    """
    comma = _COMMA.match(text, end)
    if comma is None:
        raise NotPlainError
    return "[" + text[comma.end() :]


def digest_of(piece: Piece) -> bytes:
    """``Message.digest`` of the message."""
    if piece.digest:
        return piece.digest
    if piece.calls or piece.responses:
        return read_message(parse_json(piece.json)).digest
    return digest((piece.role, f"text:{piece.text.strip()}"))


class _NotSimpleError(Exception):
    """A message that has to go through ``messages``."""


def _piece(item: Any) -> Piece:
    if item.__class__ is not dict or "parts" not in item:
        raise _NotSimpleError
    role = item.get("role")
    if role not in ROLES:
        raise _NotSimpleError
    text, calls, responses = _contents(item["parts"])
    action = json = _ENCODER.encode(item).decode()
    reason = ""
    if len(item) > _FIELDS:
        reason = item.pop("finish_reason", None)
        if len(item) > _FIELDS or reason.__class__ is not str:
            raise _NotSimpleError
        json = _ENCODER.encode(item).decode()
    return Piece(role, json, action, text, calls, responses, reason, b"")


def _contents(parts: Any) -> tuple[str, tuple[Call, ...], tuple[tuple[str, str], ...]]:
    text = ""
    calls: tuple[Call, ...] = ()
    responses: tuple[tuple[str, str], ...] = ()
    if parts.__class__ is not list:
        raise _NotSimpleError
    for part in parts:
        if part.__class__ is not dict:
            raise _NotSimpleError
        kind, keys = part.get("type"), part.keys()
        if kind == "text" and keys == _TEXT:
            text += _told(part["content"])
        elif kind == "tool_call" and keys == _CALL:
            calls = (*calls, _call(part))
        elif kind == "tool_call_response" and keys == _RESPONSE and part["id"].__class__ is str:
            responses = (*responses, (part["id"], _told(part["response"])))
        else:
            raise _NotSimpleError
    return text, calls, responses


def _told(text: Any) -> str:
    if text.__class__ is not str:
        raise _NotSimpleError
    if _REDACTED in text:
        raise NotPlainError
    return str(text)


def _call(part: dict[str, Any]) -> Call:
    identity, name, arguments = part["id"], part["name"], part["arguments"]
    if identity.__class__ is not str or name.__class__ is not str or arguments.__class__ is not dict:
        raise _NotSimpleError
    for value in arguments.values():
        if value.__class__ not in _SCALARS or (value.__class__ is int and not -(2**63) <= value < 2**63):
            raise _NotSimpleError
    return Call(identity, name, arguments)


def _exact(text: str) -> list[Piece]:
    """The messages of a list, by ``messages``."""
    try:
        items = cast("list[object]", parse_json(text))
        return [_from_message(read_message(item)) for item in items]
    except (MalformedMessagesError, RecursionError):
        raise NotPlainError from None


def _from_message(message: Message) -> Piece:
    if message.role not in ROLES or message.is_redacted or not all(call.is_valid for call in message.tool_calls):
        raise NotPlainError
    if "\\ud" in message.json:  # lone surrogates, which no column can hold
        raise NotPlainError
    json = message.json
    if message.finish_reason:
        fields = cast("dict[str, object]", parse_json(message.json))
        fields.pop("finish_reason", None)
        json = read_message(fields).json
    return Piece(
        role=message.role,
        json=json,
        action=message.json,
        text=message.text,
        calls=tuple(_calls(message)),
        responses=tuple((response.id, response.content) for response in message.tool_responses),
        finish_reason=message.finish_reason,
        digest=message.digest,
    )


def _calls(message: Message) -> Iterable[Call]:
    for call in message.tool_calls:
        yield Call(call.id, call.name, cast("dict[str, object]", parse_json(call.arguments)))
