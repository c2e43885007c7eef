"""The border to the protobuf runtime, which ships no type information: parse, serialise, and walk raw wire bytes.

Invariant: nothing outside this module sees an untyped protobuf call, and malformed input is always a
`MalformedError`, whatever the runtime raised.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5
_FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}


class MalformedError(ValueError):
    """Bytes that are no message of the expected type."""


class Message(Protocol):
    """What we use of a generated message."""

    def MergeFromString(self, serialized: bytes) -> object:  # noqa: N802, D102 - the runtime's name
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802, D102 - the runtime's name
        ...


M = TypeVar("M")
Path: TypeAlias = tuple[int, ...]
"""Field numbers from a message down to one in it."""


class Place(NamedTuple):
    """Where a field is."""

    number: int
    wire_type: int
    start: int
    """Of its tag."""
    content: int
    """Of what is behind the tag and, where it is length-delimited, the length."""
    end: int


class Field(NamedTuple):
    """One field on the wire."""

    number: int
    wire_type: int
    payload: bytes
    """Length-delimited: the content without its length; otherwise the raw value."""
    raw: bytes
    """Tag, length and content."""


def parse(message_type: type[M], body: bytes) -> M:
    """Parse a whole message.

    Raises:
        MalformedError: Truncated, bad UTF-8, nested too deeply, or no protobuf at all.
    """
    message = message_type()
    try:
        cast("Message", message).MergeFromString(body)
    except DecodeError as error:
        raise MalformedError(f"{message_type.__name__} of {len(body)} bytes: {error}") from error
    return message


def parses_at(payload: bytes, message_type: type[object], path: Path) -> bool:
    """Whether the runtime takes a message at its place in another one: what is around it counts for the depth too."""
    for number in reversed(path):
        payload = encode_field(number, payload)
    try:
        parse(message_type, payload)
    except MalformedError:
        return False
    return True


def parse_json(message_type: type[M], data: Mapping[str, object]) -> M:
    """Read protobuf's own JSON mapping; unknown fields are ignored.

    Raises:
        MalformedError: A field of the wrong type or out of its range.
    """
    message: Any = message_type()
    try:
        json_format.ParseDict(dict(data), message, ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise MalformedError(str(error)) from error
    return cast("M", message)


def serialize(message: object) -> bytes:
    """The message as bytes."""
    return cast("Message", message).SerializeToString()


def fields(data: bytes) -> Iterator[Field]:
    """The fields of one message, without looking into them.

    Raises:
        MalformedError: The bytes are no protobuf message.
    """
    for place in places(data, 0, len(data)):
        yield Field(place.number, place.wire_type, data[place.content : place.end], data[place.start : place.end])


def places(data: bytes, start: int, end: int) -> Iterator[Place]:
    """Where the fields of a message are that lies between two offsets.

    Raises:
        MalformedError: The bytes are no protobuf message.
    """
    at = start
    while at < end:
        first = at
        tag, at = read_varint(data, at)
        number, wire_type = tag >> 3, tag & 7
        content = at
        if wire_type == LENGTH_DELIMITED:
            length, content = read_varint(data, at)
            at = content + length
        elif wire_type == VARINT:
            _, at = read_varint(data, at)
        elif wire_type in _FIXED_BYTES:
            at += _FIXED_BYTES[wire_type]
        else:
            raise MalformedError(f"wire type {wire_type} of field {number} at byte {first}")
        if at > end or number == 0:
            raise MalformedError(f"field {number} at byte {first} ends at {at}, after the message's end at {end}")
        yield Place(number, wire_type, first, content, at)


def encode_field(number: int, payload: bytes) -> bytes:
    """A length-delimited field."""
    return write_varint(number << 3 | LENGTH_DELIMITED) + write_varint(len(payload)) + payload


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The varint at an offset, and the offset behind it.

    Raises:
        MalformedError: It ends after the data, or is longer than 64 bits allow.
    """
    size = len(data)
    if at < size and (first := data[at]) < 0x80:
        return first, at + 1
    if at + 1 < size and (second := data[at + 1]) < 0x80:
        return (data[at] & 0x7F) | second << 7, at + 2
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise MalformedError(f"varint runs over the end at byte {at}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise MalformedError(f"varint of more than ten bytes before byte {at}")


def write_varint(value: int) -> bytes:
    """A non-negative integer as varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
