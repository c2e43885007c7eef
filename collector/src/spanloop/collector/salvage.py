"""Saves what can be saved of a body that the protobuf runtime refuses as a whole.

One string that is not UTF-8, or one value nested too deeply, makes the runtime refuse every span of the request.
Here the body is taken apart by hand: each span or log record stands for itself.

Invariant: the result parses; every item of the input is in it unchanged, in it with U+FFFD for bytes that are no
UTF-8 (counted as repaired), or counted as undecodable. Traces and logs have the same envelope (resource, scope,
item) with the same field numbers.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .wire import LENGTH_DELIMITED, Field, MalformedError, encode_field, fields, parse

_CONTEXT_FIELD: Final = 1  # resource or scope
_CHILDREN_FIELD: Final = 2  # scopes of a resource, items of a scope
_MAX_DEPTH: Final = 100  # the protobuf runtime's own limit


class Salvaged(NamedTuple):
    """A body that parses, and what it took."""

    body: bytes
    repaired: int
    """Items, resources and scopes that were changed to make them parse."""
    undecodable: int
    """Items that are not in the body any more."""


class _Counts:
    def __init__(self) -> None:
        self.kept = 0
        self.repaired = 0
        self.undecodable = 0


def salvage(body: bytes, item_type: type[Span] | type[LogRecord]) -> Salvaged:
    """Take a refused body apart.

    Raises:
        MalformedError: Not even the envelope is protobuf, or not one item could be kept.
    """
    counts = _Counts()
    out = b"".join(
        encode_field(1, _resource_items(field.payload, item_type, counts))
        for field in _delimited(body)
        if field.number == 1
    )
    if not counts.kept:
        raise MalformedError(f"none of {counts.undecodable} items in {len(body)} bytes could be decoded")
    return Salvaged(out, counts.repaired, counts.undecodable)


def _resource_items(data: bytes, item_type: type[Span] | type[LogRecord], counts: _Counts) -> bytes:
    out: list[bytes] = []
    for field in _delimited(data):
        if field.number == _CHILDREN_FIELD:
            out.append(encode_field(_CHILDREN_FIELD, _scope_items(field.payload, item_type, counts)))
        else:
            out.append(_context(field, Resource, counts))
    return b"".join(out)


def _scope_items(data: bytes, item_type: type[Span] | type[LogRecord], counts: _Counts) -> bytes:
    out: list[bytes] = []
    for field in _delimited(data):
        if field.number != _CHILDREN_FIELD:
            out.append(_context(field, InstrumentationScope, counts))
            continue
        item = _mend(field.payload, item_type)
        if item is None:
            counts.undecodable += 1
            continue
        counts.kept += 1
        counts.repaired += item != field.payload
        out.append(encode_field(_CHILDREN_FIELD, item))
    return b"".join(out)


def _context(field: Field, message_type: type[Resource] | type[InstrumentationScope], counts: _Counts) -> bytes:
    """Resource, scope or schema url; left out when nothing of it can be kept, because the items matter more."""
    is_context = field.number == _CONTEXT_FIELD
    payload = (_mend(field.payload, message_type) or b"") if is_context else _utf8(field.payload)
    counts.repaired += payload != field.payload
    return encode_field(field.number, payload)


def _mend(
    payload: bytes, message_type: type[Span] | type[LogRecord] | type[Resource] | type[InstrumentationScope]
) -> bytes | None:
    """The payload if it parses, else a repaired one, else None."""
    try:
        parse(message_type, payload)
    except MalformedError:
        pass
    else:
        return payload
    try:
        repaired = _repair(payload, message_type.DESCRIPTOR, 0)
        parse(message_type, repaired)
    except MalformedError:
        return None
    return repaired


def _repair(data: bytes, descriptor: Descriptor, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise MalformedError(f"nested more than {_MAX_DEPTH} messages deep")
    return b"".join(_repair_field(field, descriptor, depth) for field in fields(data))


def _repair_field(field: Field, descriptor: Descriptor, depth: int) -> bytes:
    known: FieldDescriptor | None = descriptor.fields_by_number.get(field.number)
    if known is None or field.wire_type != LENGTH_DELIMITED:
        return field.raw
    if known.type == FieldDescriptor.TYPE_STRING:
        return encode_field(field.number, _utf8(field.payload))
    if known.type == FieldDescriptor.TYPE_MESSAGE and known.message_type is not None:
        return encode_field(field.number, _repair(field.payload, known.message_type, depth + 1))
    return field.raw


def _utf8(payload: bytes) -> bytes:
    return payload.decode("utf-8", "replace").encode()


def _delimited(data: bytes) -> Iterator[Field]:
    """The envelope has length-delimited fields only; others are unknown and left out."""
    return (field for field in fields(data) if field.wire_type == LENGTH_DELIMITED)
