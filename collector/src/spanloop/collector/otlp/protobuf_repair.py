"""Repair a request body that the protobuf runtime refuses as a whole.

One string that is not UTF-8, or one value nested too deeply, makes the runtime refuse every span of the request. This
module splits the body at the wire level and parses each span or log record alone.

Invariant: the result parses; every item of the input is in it unchanged, in it with U+FFFD for bytes that are not
UTF-8 (counted as repaired), or counted as undecodable. Traces and logs have the same envelope (resource, scope, item)
with the same field numbers.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .wire import LENGTH_DELIMITED, Field, MalformedError, Path, encode_field, fields, parses_at

_CHILDREN_FIELD: Final = 2  # scopes of a resource, items of a scope
_RESOURCE: Final = (1, 1)
_SCOPE: Final = (1, 2, 1)
_ITEM: Final = (1, 2, 2)
_MAX_DEPTH: Final = 100  # the protobuf runtime's own limit

_RequestType = type[ExportTraceServiceRequest] | type[ExportLogsServiceRequest]


class RepairedRequest(NamedTuple):
    """A body that parses, and the counts of repaired and undecodable items."""

    body: bytes
    repaired: int
    """Items, resources and scopes that were changed to make them parse."""
    undecodable: int
    """Items that are no longer in the body."""
    left_out: bytes
    """The undecodable items unchanged, in their envelope; empty when there are none."""


class _Counts:
    def __init__(self) -> None:
        self.decoded = 0
        self.repaired = 0
        self.undecodable = 0


class _SplitMessage(NamedTuple):
    """One message of the envelope, split into one with the decodable items and one with the undecodable items."""

    decoded: bytes
    left_out: bytes
    """Empty when every item could be decoded."""


def repair_request(body: bytes, request_type: _RequestType) -> RepairedRequest:
    """Repair a body that the protobuf runtime refuses.

    Raises:
        MalformedError: The envelope is not protobuf, or no item could be decoded.
    """
    counts = _Counts()
    messages = [_split_resource(field.payload, request_type, counts) for field in _delimited(body) if field.number == 1]
    if not counts.decoded:
        raise MalformedError(f"none of {counts.undecodable} items in {len(body)} bytes could be decoded")
    decoded = b"".join(encode_field(1, message.decoded) for message in messages)
    left_out = b"".join(encode_field(1, message.left_out) for message in messages if message.left_out)
    return RepairedRequest(decoded, counts.repaired, counts.undecodable, left_out)


def _split_resource(data: bytes, request_type: _RequestType, counts: _Counts) -> _SplitMessage:
    decoded: list[bytes] = []
    context: list[bytes] = []
    undecodable: list[bytes] = []
    for field in _delimited(data):
        if field.number == _CHILDREN_FIELD:
            scope = _split_scope(field.payload, request_type, counts)
            decoded.append(encode_field(_CHILDREN_FIELD, scope.decoded))
            if scope.left_out:
                undecodable.append(encode_field(_CHILDREN_FIELD, scope.left_out))
        else:
            decoded.append(_repair_context(field, request_type, _RESOURCE, counts))
            context.append(field.raw)
    return _SplitMessage(b"".join(decoded), b"".join([*context, *undecodable]) if undecodable else b"")


def _split_scope(data: bytes, request_type: _RequestType, counts: _Counts) -> _SplitMessage:
    decoded: list[bytes] = []
    context: list[bytes] = []
    undecodable: list[bytes] = []
    for field in _delimited(data):
        if field.number != _CHILDREN_FIELD:
            decoded.append(_repair_context(field, request_type, _SCOPE, counts))
            context.append(field.raw)
            continue
        item = _repair_message(field.payload, request_type, _ITEM)
        if item is None:
            counts.undecodable += 1
            undecodable.append(field.raw)
            continue
        counts.decoded += 1
        counts.repaired += item != field.payload
        decoded.append(encode_field(_CHILDREN_FIELD, item))
    return _SplitMessage(b"".join(decoded), b"".join([*context, *undecodable]) if undecodable else b"")


def _repair_context(field: Field, request_type: _RequestType, path: Path, counts: _Counts) -> bytes:
    """Repair a resource, scope or schema URL; empty when it cannot be decoded, because the items matter more."""
    is_context = field.number == path[-1]
    payload = (_repair_message(field.payload, request_type, path) or b"") if is_context else _to_utf8(field.payload)
    counts.repaired += payload != field.payload
    return encode_field(field.number, payload)


def _repair_message(payload: bytes, request_type: _RequestType, path: Path) -> bytes | None:
    """Return the payload if it parses, else a repaired one, else None."""
    if parses_at(payload, request_type, path):
        return payload
    descriptor = request_type.DESCRIPTOR
    for number in path:
        descriptor = cast("Descriptor", descriptor.fields_by_number[number].message_type)
    try:
        repaired = _repair_fields(payload, descriptor, len(path))
    except MalformedError:
        return None
    return repaired if parses_at(repaired, request_type, path) else None


def _repair_fields(data: bytes, descriptor: Descriptor, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise MalformedError(f"nested more than {_MAX_DEPTH} messages deep")
    return b"".join(_repair_field(field, descriptor, depth) for field in fields(data))


def _repair_field(field: Field, descriptor: Descriptor, depth: int) -> bytes:
    field_type: FieldDescriptor | None = descriptor.fields_by_number.get(field.number)
    if field_type is None or field.wire_type != LENGTH_DELIMITED:
        return field.raw
    if field_type.type == FieldDescriptor.TYPE_STRING:
        return encode_field(field.number, _to_utf8(field.payload))
    if field_type.type == FieldDescriptor.TYPE_MESSAGE and field_type.message_type is not None:
        return encode_field(field.number, _repair_fields(field.payload, field_type.message_type, depth + 1))
    return field.raw


def _to_utf8(payload: bytes) -> bytes:
    return payload.decode("utf-8", "replace").encode()


def _delimited(data: bytes) -> Iterator[Field]:
    """Yield the length-delimited fields: the envelope has no others, so others are unknown and left out."""
    return (field for field in fields(data) if field.wire_type == LENGTH_DELIMITED)
