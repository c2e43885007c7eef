"""Messages of plain episodes: read once, by the fast decoder, and only what the call before did not have.

Invariant: what is read here is what ``messages`` reads, to the byte. A message of text, tool calls with plain
arguments or tool responses as text is checked by its type while it is decoded; any other goes through ``messages``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, cast

import msgspec
import numpy as np
import polars as pl

from ..messages import MalformedMessagesError, Message, digest, parse_json, read_message
from ..ragged import lines
from ..usual import Call, Response, Scalar, Text, Typed


class Piece(NamedTuple):
    """A message, as far as a plain episode needs it."""

    role: str
    parts: list[Text | Call | Response]
    finish_reason: str
    json: str
    """As ``Message.json``."""
    bare: str
    """The same without its finish reason: as it comes back in the next input."""
    digest: bytes = b""
    """Empty where ``digest_of`` has to find it."""

    @property
    def text(self) -> str:
        """As ``Message.text``."""
        return "".join([part.content for part in self.parts if isinstance(part, Text)])

    @property
    def calls(self) -> list[Call]:
        """The tool calls."""
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def responses(self) -> list[Response]:
        """The tool responses."""
        return [part for part in self.parts if isinstance(part, Response)]


class Result(msgspec.Struct, gc=False):
    """A tool call that worked, with the fields of ``ToolResult.as_json``."""

    tool_call_id: str
    name: str
    status: str
    error_type: str
    content: str
    duration_ns: int
    span_id: str


def written(results: list[Result]) -> str:
    """The JSON of ``transitions.tool_results``."""
    return _ENCODE(results).decode()


def written_lines(results: list[list[Result]]) -> pl.Series:
    """``written`` of the results of many calls."""
    return lines([_ENCODE_LINES(results[start : start + _BLOCK]) for start in range(0, len(results), _BLOCK)])


class NotPlainError(Exception):
    """A message that a plain episode does not have: its trace takes the long way, and loses nothing."""


_DECODE: Final = msgspec.json.Decoder().decode
_DECODE_TYPED: Final = msgspec.json.Decoder(list[Typed]).decode
_ENCODE: Final = msgspec.json.Encoder().encode
_DECODE_LINES: Final = msgspec.json.Decoder(list[Typed]).decode_lines
_ENCODE_LINES: Final = msgspec.json.Encoder().encode_lines
_DECODE_ALL: Final = msgspec.json.Decoder().decode_lines
_MARKS: Final = ["REDACTED", "\\u004", "\\u005"]
"""Without one of these no text is redacted, be it written out or letter by letter."""
_SPACES: Final = b" \t\n\r"
"""Texts that are the same without these, in their strings too, have the same fields in the same order: no field that
``usual`` knows has a space in its name."""

_COMMA: Final = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")


def pieces(text: str) -> list[Piece]:
    """The messages of a JSON list.

    Raises:
        NotPlainError: When something in it is unusual.
    """
    if "REDACTED" in text or ("\\u00" in text and ("\\u004" in text or "\\u005" in text)):
        return _exact(text)  # redaction, written out or letter by letter
    try:
        typed = _DECODE_TYPED(text)
        told: list[dict[str, object]] = _DECODE(text)
    except (ValueError, RecursionError):
        return _exact(text)
    found: list[Piece] = []
    for one in typed:
        fields = told[len(found)]
        json = bare = _ENCODE(fields).decode()
        if one.finish_reason:
            del fields["finish_reason"]
            bare = _ENCODE(fields).decode()
        found.append(Piece(one.role, one.parts, one.finish_reason, json, bare, b""))
    return found


class Listed(NamedTuple):
    """A list of messages."""

    messages: Sequence[Piece | Typed]
    text: str
    """As ``join_json``."""
    is_as_written: bool
    """Whether it was written like that."""

    @property
    def json(self) -> str:
        """``text`` without its brackets."""
        return self.text[1:-1]


def read_lists(texts: Sequence[str]) -> list[Listed | None]:
    """The messages of many JSON lists, all at once; None for those of which ``pieces`` says that they are unusual."""
    found: list[Listed | None] = []
    for start in range(0, len(texts), _BLOCK):
        found += _read_block(texts[start : start + _BLOCK])
    return found


_BLOCK: Final = 256
"""So many lists are decoded together; where one of them is unusual, each is by itself."""


def _read_block(texts: Sequence[str]) -> list[Listed | None]:
    # Every list ends where its text does: what is between two lists could stand in no JSON value.
    if all(text[:1] == "[" and text[-1:] == "]" for text in texts):
        whole = "\n".join(texts)
        if "REDACTED" not in whole and "\\u00" not in whole:
            data = whole.encode()
            try:
                typed = _DECODE_LINES(data)
            except (ValueError, RecursionError):
                typed = []
            if len(typed) == len(texts):
                encoded = _ENCODE_LINES(typed)
                if encoded[:-1] == data:
                    return [
                        Listed(messages, text, is_as_written=True) for messages, text in zip(typed, texts, strict=True)
                    ]
                lines = encoded.decode().split("\n")
                return [
                    Listed(messages, text, is_as_written=True) if text == line else _listed(text)
                    for text, line, messages in zip(texts, lines, typed, strict=False)
                ]
    return [_listed(text) for text in texts]


def _listed(text: str) -> Listed | None:
    try:
        found = pieces(text)
    except NotPlainError:
        return None
    whole = f"[{','.join([piece.json for piece in found])}]"
    return Listed(found, whole, is_as_written=whole == text)


def decoded_blocks(texts: pl.Series) -> Iterator[tuple[list[list[Typed]], bytes]]:
    """The messages of many JSON lists and the compact JSON of the lists, each on a line, some hundred at a time.

    Without messages where one of a list's is unusual.

    Args:
        texts: Each begins with a bracket and ends with one.
    """
    is_marked = texts.str.contains_any(_MARKS)
    has_marks = is_marked.any()
    data: bytes = texts.str.join("\n").cast(pl.Binary).item()
    ends = [-1, *(np.cumsum(texts.str.len_bytes().to_numpy().astype(np.int64) + 1) - 1).tolist()]
    for start in range(0, len(texts), _BLOCK):
        places = range(start, min(start + _BLOCK, len(texts)))
        block = data[ends[start] + 1 : ends[places.stop]]
        found = None
        if not (has_marks and is_marked[places.start : places.stop].any()):
            found = _decoded_lines(block, len(places))
        if found is not None:
            yield found
            continue
        for place in places:
            own = data[ends[place] + 1 : ends[place + 1]]
            yield (None if is_marked[place] else _decoded_lines(own, 1)) or ([[]], b"[]\n")


def _decoded_lines(data: bytes, count: int) -> tuple[list[list[Typed]], bytes] | None:
    """The messages of the lists, and their compact JSON; None where any of them is unusual."""
    try:
        typed: list[list[Typed]] = _DECODE_LINES(data)
        if len(typed) != count:
            return None
        json = _ENCODE_LINES(typed)
        if data.translate(None, _SPACES) != json.translate(None, _SPACES):
            json = _ENCODE_LINES(_DECODE_ALL(data))  # fields in another order, or letters written otherwise
    except (ValueError, RecursionError):
        return None
    return typed, json


def spelled(text: str, reason: str) -> str:
    """The one message of a list as it was spelled there, less its finish reason; empty where that is unclear.

    Args:
        text: A list that ``pieces`` has read.
        reason: The finish reason.
    """
    if reason:
        for tail in (f', "finish_reason": "{reason}"}}]', f',"finish_reason":"{reason}"}}]'):
            if text.endswith(tail):
                return text[1 : -len(tail)] + "}"
        return ""
    return text[1:-1] if text.startswith("[{") and text.endswith("}]") else ""


def following(text: str, end: int) -> int:
    """Where the element begins that follows the one that ended at ``end``.

    Raises:
        NotPlainError: When nothing follows.
    """
    comma = _COMMA.match(text, end)
    if comma is None:
        raise NotPlainError
    return comma.end()


def end_of(text: str) -> int:
    """Where the last element of a list ends."""
    return len(text) - 1 if text.endswith("}]") else len(text.rstrip(" \t\n\r")[:-1].rstrip(" \t\n\r"))


def digest_of(piece: Piece) -> bytes:
    """``Message.digest`` of the message."""
    if piece.digest:
        return piece.digest
    if not all(isinstance(part, Text) for part in piece.parts):
        return read_message(parse_json(piece.json)).digest
    return digest_of_text(piece.role, piece.text)


def digest_of_text(role: str, text: str) -> bytes:
    """``Message.digest`` of a message that is text alone."""
    return digest((role, f"text:{text.strip()}"))


def piece_of(message: Message) -> Piece:
    """A message that ``messages`` has read.

    Raises:
        NotPlainError: When a plain episode does not have such a message.
    """
    if message.role not in {"system", "user", "assistant", "tool"} or message.is_redacted:
        raise NotPlainError
    if not all(call.is_valid for call in message.tool_calls):
        raise NotPlainError
    if '"is_error":true' in message.json:
        raise NotPlainError
    if "\\ud" in message.json:  # lone surrogates, which no column can hold
        raise NotPlainError
    bare = message.json
    if message.finish_reason:
        fields = cast("dict[str, object]", parse_json(message.json))
        bare = read_message({key: value for key, value in fields.items() if key != "finish_reason"}).json
    parts: list[Text | Call | Response] = [Text(message.text)]
    parts += [Call(call.id, call.name, _arguments(call.arguments)) for call in message.tool_calls]
    parts += [Response(response.id, response.content) for response in message.tool_responses]
    return Piece(message.role, parts, message.finish_reason, message.json, bare, message.digest)


def _arguments(text: str) -> dict[str, Scalar]:
    return cast("dict[str, Scalar]", parse_json(text))


def _exact(text: str) -> list[Piece]:
    """The messages of a list, by ``messages``."""
    try:
        return [piece_of(read_message(item)) for item in cast("list[object]", parse_json(text))]
    except (MalformedMessagesError, RecursionError, TypeError):
        raise NotPlainError from None
