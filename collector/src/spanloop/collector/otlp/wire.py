"""Parse, serialise and scan protobuf wire bytes.

Invariant: only this module calls the untyped protobuf runtime, and malformed input always raises `MalformedError`.
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
    """Raised when bytes are not a message of the expected type."""


class Message(Protocol):
    """The methods of a generated message that are used here."""

    def MergeFromString(self, serialized: bytes) -> object:  # noqa: N802, D102 - the runtime's name
        ...

    def SerializeToString(self) -> bytes:  # noqa: N802, D102 - the runtime's name
        ...


M = TypeVar("M")
Path: TypeAlias = tuple[int, ...]
"""Field numbers from a message down to a nested one."""


class FieldRange(NamedTuple):
    """The offsets of one field."""

    number: int
    wire_type: int
    start: int
    """Offset of the tag."""
    content: int
    """Offset of the value, after the tag and, if the field is length-delimited, the length."""
    end: int


class Field(NamedTuple):
    """One field on the wire."""

    number: int
    wire_type: int
    payload: bytes
    """The value; without its length if the field is length-delimited."""
    raw: bytes
    """Tag, length and value."""


def parse(message_type: type[M], body: bytes) -> M:
    """Parse a whole message.

    Raises:
        MalformedError: The bytes are truncated, not UTF-8, nested too deeply, or not protobuf.
    """
    message = message_type()
    try:
        cast("Message", message).MergeFromString(body)
    except DecodeError as error:
        raise MalformedError(f"{message_type.__name__} of {len(body)} bytes: {error}") from error
    return message


def parses_at(payload: bytes, message_type: type[object], path: Path) -> bool:
    """Whether the runtime parses a message nested at a path; the messages around it count for the depth limit."""
    for number in reversed(path):
        payload = encode_field(number, payload)
    try:
        parse(message_type, payload)
    except MalformedError:
        return False
    return True


def parse_json(message_type: type[M], data: Mapping[str, object]) -> M:
    """Parse protobuf's JSON mapping; unknown fields are ignored.

    Raises:
        MalformedError: A field has the wrong type or is out of range.
    """
    message: Any = message_type()
    try:
        json_format.ParseDict(dict(data), message, ignore_unknown_fields=True)
    except json_format.ParseError as error:
        raise MalformedError(str(error)) from error
    return cast("M", message)


def serialize(message: object) -> bytes:
    """Return the message as bytes."""
    return cast("Message", message).SerializeToString()


def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of one message.

    Raises:
        MalformedError: The bytes are no protobuf message.
    """
    for field in field_ranges(data, 0, len(data)):
        yield Field(field.number, field.wire_type, data[field.content : field.end], data[field.start : field.end])


def field_ranges(data: bytes, start: int, end: int) -> Iterator[FieldRange]:
    """Yield the offsets of the fields of a message that lies between two offsets.

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
        yield FieldRange(number, wire_type, first, content, at)


def encode_field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field."""
    return write_varint(number << 3 | LENGTH_DELIMITED) + write_varint(len(payload)) + payload


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at an offset, and the offset after it.

    Raises:
        MalformedError: The varint ends after the data, or has more than ten bytes.
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
    """Return a non-negative integer as varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
