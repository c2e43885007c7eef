"""Canonical messages: OpenTelemetry's JSON form, read once into frozen values.

Invariant: ``Message.json`` carries every part that came in, known or not; the other fields are views on it. A
message's digest covers what the model sees, not how an instrumentor spells it: ids of tool calls, empty text and
the order of object keys do not count, so that an output equals its later appearance in an input.
"""

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Final, NamedTuple, cast

import msgspec

from . import chat_forms, usual
from .turns import Course

REDACTED_MARKERS: Final = ("__REDACTED__", "[REDACTED]", "<REDACTED>")
_DECODER: Final = json.JSONDecoder()
_DECODER_OF_VALUES: Final = msgspec.json.Decoder()
_READABLE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ESCAPED: Final = json.JSONEncoder(separators=(",", ":"))
_SORTED: Final = json.JSONEncoder(sort_keys=True)
_COMMA: Final = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
_WHITESPACE: Final = frozenset(" \t\n\r")
_BEGINNING: Final = 3
"""So many messages tell one conversation from another: system, user, first answer."""


class MalformedMessagesError(ValueError):
    """Text that should be a list of messages and is not."""


class ToolCall(NamedTuple):
    """One call that an action asks for."""

    id: str
    name: str
    arguments: str
    """The JSON text of the arguments; the text as it came when ``is_valid`` is false."""
    is_valid: bool
    """Whether the arguments are a JSON object (or absent)."""


class ToolResponse(NamedTuple):
    """What a tool answered, as the model was shown it."""

    id: str
    content: str


class Message(NamedTuple):
    """One message of a conversation."""

    role: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    tool_responses: tuple[ToolResponse, ...]
    finish_reason: str
    json: str
    digest: bytes
    is_redacted: bool


def dump(value: object) -> str:
    """Compact JSON, readable where UTF-8 can carry it, escaped where it cannot (lone surrogates)."""
    text = _READABLE.encode(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return _ESCAPED.encode(value)
    return text


def parse_json(text: str | bytes) -> object:
    """The decoded JSON value.

    Raises:
        MalformedMessagesError: When ``text`` is not JSON, or is nested deeper than the decoder goes.
    """
    try:
        return cast("object", _DECODER_OF_VALUES.decode(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        pass  # Numbers out of range, lone surrogates and greater depths are Python's to read.
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise MalformedMessagesError(f"not JSON: {error}; got {text[:80]!r}") from error


class Facts(NamedTuple):
    """What is to be known of a list of messages as a whole; found out of what is new in it."""

    length: int = 0
    is_redacted: bool = False
    has_system: bool = False
    is_asked: bool = False
    """Whether a message is the system's or the user's."""
    says_something: bool = False
    """Whether one of those has any parts."""
    course: Course = Course()

    def further(self, whole: Sequence[Message]) -> "Facts":
        """With all of ``whole``, which begins with what was looked at."""
        messages = whole[self.length :]
        if not messages:
            return self
        asking = [found for found in messages if found.role in _ASKING]
        return Facts(
            len(whole),
            self.is_redacted or any(found.is_redacted for found in messages),
            self.has_system or any(found.role == "system" for found in asking),
            self.is_asked or bool(asking),
            self.says_something or any(NO_PARTS not in found.json for found in asking),
            self.course.further(whole, self.length),
        )


NO_PARTS: Final = '"parts":[]'
"""In a message's JSON: nothing is in it."""

_ASKING: Final = frozenset({"system", "user"})
_NO_FACTS: Final = Facts()


class Conversation(NamedTuple):
    """Messages, and the running digest after each of them."""

    messages: tuple[Message, ...]
    chain: tuple[bytes, ...]
    facts: Facts


class _Read(NamedTuple):
    """A list of messages that was read, and where its last one ended."""

    text: str
    messages: list[Message]
    chain: list[bytes]
    beginning: str
    """Text up to the end of the third message; empty where there are fewer."""
    facts: Facts


class MessageReader:
    """Reads lists of messages. Agents send their whole history with every call: what was read before is not read again.

    A list that starts with one that was read goes on behind it: the last one of the same place, else one that is found
    by the text of its first three messages. A message that was read in another list costs its decoding only.
    """

    def __init__(self) -> None:
        self._known: dict[str, Message] = {}
        self._begun: dict[str, _Read] = {}
        self._last: dict[str, _Read] = {}

    def read(self, text: str) -> tuple[Message, ...]:
        """Messages out of ``[{"role", "parts": […], "finish_reason"?}, …]``.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of such objects.
        """
        found = self._usual(text)
        return self.read_conversation(text).messages if found is None else tuple(found)

    def read_conversation(self, text: str, place: str = "") -> Conversation:
        """As ``read``, with the digests.

        Args:
            text: The list.
            place: Where it is from, such as a trace: what was read there last is probably what it goes on from.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of messages.
        """
        before = self._last.get(place)
        if before is not None and text.startswith(before.text):
            found, running, beginning = before.messages.copy(), before.chain.copy(), before.beginning
            facts, end = before.facts, len(before.text)
            position = _next(text, end)
        else:
            found, running, beginning, facts, end = [], [], "", _NO_FACTS, 0
            position = _open(text)
        while position is not None:
            if len(found) >= _BEGINNING:
                rest = self._usual("[" + text[position:])
                if rest:
                    found += rest
                    running += chain(rest, running[-1])
                    end = _end(text)
                    break
            item, end = _scan(text, position)
            message = self._message(item, text[position:end])
            found.append(message)
            running.append(extend(running[-1] if running else b"", message))
            if len(found) == _BEGINNING and not beginning:
                beginning = text[:end]
                before = self._begun.get(beginning)
                if before is not None and text.startswith(before.text):
                    found, running = before.messages.copy(), before.chain.copy()
                    facts, end = before.facts, len(before.text)
            position = _next(text, end)
        facts = facts.further(found)
        read = _Read(text[:end], found, running, beginning, facts)
        if beginning:
            self._begun[beginning] = read
        if place and found:
            self._last[place] = read
        return Conversation(tuple(found), tuple(running), facts)

    def _message(self, item: object, piece: str) -> Message:
        message = self._known.get(piece)
        if message is None:
            found = self._usual(f"[{piece}]")
            message = self._known[piece] = found[0] if found else read_message(item)
        return message

    def _usual(self, text: str) -> list[Message] | None:
        """The messages of a list; None when there is anything unusual about one of them."""
        both = usual.decoded(text)
        if both is None:
            return None
        found: list[Message] = []
        for told, fields in zip(*both, strict=True):
            whole = usual.encoded(fields)
            message = self._known.get(whole)
            if message is None:
                message = _view_usual(told, fields, whole)
                if message is None:
                    return None
                self._known[whole] = message
                if told.finish_reason:
                    # So it comes back in the input of the next call.
                    del fields["finish_reason"]
                    bare = usual.encoded(fields)
                    self._known[bare] = message._replace(finish_reason="", json=bare)
            found.append(message)
        return found


def parse_messages(text: str) -> tuple[Message, ...]:
    """As ``MessageReader.read``, for one text."""
    return MessageReader().read(text)


def _open(text: str) -> int | None:
    """Where the first element of a JSON list begins; None when it is empty."""
    position = _skip(text, 0)
    if text[position : position + 1] != "[":
        found = parse_json(text)
        raise MalformedMessagesError(f"expected a list of messages, got {type(found).__name__}")
    position = _skip(text, position + 1)
    return None if _ends(text, position) else position


def _next(text: str, end: int) -> int | None:
    """Where the element begins that follows the one that ended at ``end``; None when that was the last."""
    found = _COMMA.match(text, end)
    if found is not None:
        return found.end()
    if not _ends(text, _skip(text, end)):
        raise MalformedMessagesError(f"not JSON: expected the end of a list at {end}; got {text[:80]!r}")
    return None


def _ends(text: str, position: int) -> bool:
    return text[position : position + 1] == "]" and _skip(text, position + 1) == len(text)


def _scan(text: str, position: int) -> tuple[object, int]:
    try:
        return cast("tuple[object, int]", _DECODER.raw_decode(text, position))
    except (ValueError, RecursionError) as error:
        raise MalformedMessagesError(f"not JSON: {error}; got {text[:80]!r}") from error


def _end(text: str) -> int:
    """Where the last element of a JSON list ends."""
    return len(text) - 1 if text.endswith("}]") else len(text.rstrip(" \t\n\r")[:-1].rstrip(" \t\n\r"))


def _skip(text: str, position: int) -> int:
    """The next position that is no JSON whitespace."""
    while text[position : position + 1] in _WHITESPACE and position < len(text):
        position += 1
    return position


def parse_system_instructions(text: str) -> Message:
    """The system message that ``gen_ai.system_instructions`` (a list of parts, or plain text) stands for."""
    try:
        found = parse_json(text)
    except MalformedMessagesError:
        found = text
    parts = cast("list[object]", found) if isinstance(found, list) else [{"type": "text", "content": text}]
    return read_message({"role": "system", "parts": parts})


def _view_usual(told: usual.Typed, fields: usual.Fields, whole: str) -> Message | None:
    """As ``read_message``; None where an argument of a tool call takes more.

    Args:
        told: The message.
        fields: The same as it was written.
        whole: Its JSON.
    """
    texts: list[str] = []
    calls: list[ToolCall] = []
    responses: list[ToolResponse] = []
    seen: list[str] = [told.role]
    for number, part in enumerate(told.parts):
        if isinstance(part, usual.Text):
            texts.append(part.content)
        elif isinstance(part, usual.Response):
            responses.append(ToolResponse(part.id, part.response))
            seen.append(f"response:{part.response}")
        else:
            arguments = cast("list[dict[str, dict[str, object]]]", fields["parts"])[number]["arguments"]
            ordered = _sorted(arguments)
            if ordered is None:
                return None
            calls.append(ToolCall(part.id, part.name, usual.encoded(arguments), is_valid=True))
            seen.append(f"call:{part.name}:{ordered}")
    text = texts[0] if len(texts) == 1 else "".join(texts)
    seen.append(f"text:{text.strip()}")
    is_redacted = _is_redacted(text) or any(_is_redacted(response.content) for response in responses)
    found = (tuple(calls), tuple(responses), told.finish_reason, whole)
    return Message(told.role, text, *found, digest(seen), is_redacted)


def _sorted(arguments: dict[str, object]) -> str | None:
    """What ``_SORTED`` writes; None where a value is more than text, a whole number, a truth value or nothing."""
    found: list[str] = []
    for key in sorted(arguments) if len(arguments) > 1 else arguments:
        value = arguments[key]
        if type(value) is str:
            told = encode_basestring_ascii(value)
        elif value is None or type(value) is bool or type(value) is int:
            told = _SCALARS[value] if type(value) is not int else repr(value)
        else:
            return None
        found.append(f"{encode_basestring_ascii(key)}: {told}")
    return "{" + ", ".join(found) + "}"


_SCALARS: Final[dict[object, str]] = {None: "null", True: "true", False: "false"}


def read_message(item: object) -> Message:
    """One decoded message.

    Raises:
        MalformedMessagesError: When it is none.
    """
    if not isinstance(item, dict):
        raise MalformedMessagesError(f"expected a message object, got {type(item).__name__}")
    fields = cast("dict[str, object]", item)
    if ("parts" not in fields and _is_known_form(fields)) or fields.get("tool_calls") or fields.get("tool_call_id"):
        fields = chat_forms.message(fields)
    role, parts = fields.get("role"), fields.get("parts", [])
    if not isinstance(role, str) or not isinstance(parts, list):
        raise MalformedMessagesError("expected a message with a text 'role' and a list 'parts'")
    return _view(fields, chat_forms.ROLES.get(role.lower(), role), cast("list[object]", parts))


def _is_known_form(fields: dict[str, object]) -> bool:
    """Whether the object is a message as chat APIs and frameworks spell it."""
    return any(key in fields for key in ("content", "tool_calls", "function_call", "lc", "data", "message")) or (
        fields.get("type") in {"function_call", "function_call_output", "reasoning"}
    )


def _view(fields: dict[str, object], role: str, parts: list[object]) -> Message:
    texts: list[str] = []
    calls: list[ToolCall] = []
    responses: list[ToolResponse] = []
    seen: list[str] = [role]
    for position, part in enumerate(parts):
        found = cast("dict[str, object]", part) if isinstance(part, dict) else {"type": "text", "content": part}
        if found.get("type") not in chat_forms.CANONICAL_PARTS or "text" in found:
            known = chat_forms.part(found)
            if known is not found:
                found = cast("dict[str, object]", known)
                parts, fields = _replaced(fields, parts, position, found)
        match found.get("type"):
            case "text":
                texts.append(_text(found.get("content", "")))
            case "tool_call":
                call = _tool_call(found)
                if isinstance(found.get("arguments"), str) and call.is_valid and call.arguments != "{}":
                    known = {**found, "arguments": json.loads(call.arguments)}
                    parts, fields = _replaced(fields, parts, position, known)
                calls.append(call)
                seen.append(f"call:{call.name}:{_canonical(call, found.get('arguments'))}")
            case "tool_call_response":
                answer = found.get("response", found.get("result"))
                # Bedrock's and Strands' answers are lists of text blocks.
                answer = chat_forms.plain(cast("object", answer)) if isinstance(answer, list) else answer
                response = ToolResponse(_text(found.get("id")), _text(answer))
                responses.append(response)
                seen.append(f"response:{response.content}")
            case _:
                seen.append(_SORTED.encode(found))
    text = "".join(texts)
    seen.append(f"text:{text.strip()}")
    return Message(
        role=role,
        text=text,
        tool_calls=tuple(calls),
        tool_responses=tuple(responses),
        finish_reason=_text(fields.get("finish_reason")),
        json=dump(fields),
        digest=digest(seen),
        is_redacted=_is_redacted(text) or any(_is_redacted(found.content) for found in responses),
    )


def _replaced(
    fields: dict[str, object], parts: list[object], position: int, part: dict[str, object]
) -> tuple[list[object], dict[str, object]]:
    """Copies with ``part`` in the place of what was there."""
    changed = [*parts[:position], part, *parts[position + 1 :]]
    return changed, {**fields, "parts": changed}


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value)


def _tool_call(part: dict[str, object]) -> ToolCall:
    arguments = part.get("arguments")
    name, identity = _text(part.get("name")), _text(part.get("id"))
    if arguments is None or arguments == "":
        return ToolCall(identity, name, "{}", is_valid=True)
    if not isinstance(arguments, str):
        return ToolCall(identity, name, dump(arguments), is_valid=isinstance(arguments, dict))
    try:
        is_object = isinstance(parse_json(arguments), dict)
    except MalformedMessagesError:
        is_object = False
    return ToolCall(identity, name, arguments, is_valid=is_object)


def _canonical(call: ToolCall, arguments: object) -> str:
    if not call.is_valid:
        return call.arguments
    return _SORTED.encode(arguments if isinstance(arguments, dict) else json.loads(call.arguments))


def _is_redacted(text: str) -> bool:
    return "REDACTED" in text and any(marker in text for marker in REDACTED_MARKERS)


def digest(pieces: Iterable[str]) -> bytes:
    """16 bytes that stand for the pieces in their order."""
    found: list[bytes] = []
    for piece in pieces:
        data = piece.encode("utf-8", "surrogatepass")
        found += (len(data).to_bytes(8, "big"), data)
    return blake2b(b"".join(found), digest_size=16).digest()


def chain(messages: Iterable[Message], running: bytes = b"") -> tuple[bytes, ...]:
    """The running digest after each message: two conversations share a prefix exactly when they share its digest.

    Args:
        messages: One after another.
        running: The digest before the first of them.
    """
    found: list[bytes] = []
    for message in messages:
        running = extend(running, message)
        found.append(running)
    return tuple(found)


def extend(running: bytes, message: Message) -> bytes:
    """The running digest one message further."""
    return blake2b(running + message.digest, digest_size=16).digest()


def join_json(messages: Iterable[Message]) -> str:
    """The JSON list of the messages."""
    return "[" + ",".join([message.json for message in messages]) + "]"
