"""Saves what can be saved of a body that the protobuf runtime refuses as a whole.

One string that is not UTF-8, or one value nested too deeply, makes the runtime refuse every span of the request.
Here the body is taken apart by hand: each span or log record stands for itself.

Invariant: the result parses; every item of the input is in it unchanged, in it with U+FFFD for bytes that are no
UTF-8 (counted as repaired), or counted as undecodable. Traces and logs have the same envelope (resource, scope,
item) with the same field numbers.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .otlp.wire import LENGTH_DELIMITED, Field, MalformedError, Path, encode_field, fields, parses_at

_CHILDREN_FIELD: Final = 2  # scopes of a resource, items of a scope
_RESOURCE: Final = (1, 1)
_SCOPE: Final = (1, 2, 1)
_ITEM: Final = (1, 2, 2)
_MAX_DEPTH: Final = 100  # the protobuf runtime's own limit

_RequestType = type[ExportTraceServiceRequest] | type[ExportLogsServiceRequest]


class Salvaged(NamedTuple):
    """A body that parses, and what it took."""

    body: bytes
    repaired: int
    """Items, resources and scopes that were changed to make them parse."""
    undecodable: int
    """Items that are not in the body any more."""
    left_out: bytes
    """Those items as they came, in their envelope; empty when there are none."""


class _Counts:
    def __init__(self) -> None:
        self.kept = 0
        self.repaired = 0
        self.undecodable = 0


class _Pair(NamedTuple):
    """One message of the envelope, twice: with the items that could be kept, and with those that could not."""

    kept: bytes
    left_out: bytes
    """Empty when every item was kept."""


def salvage(body: bytes, request_type: _RequestType) -> Salvaged:
    """Take a refused body apart.

    Raises:
        MalformedError: Not even the envelope is protobuf, or not one item could be kept.
    """
    counts = _Counts()
    pairs = [_resource_items(field.payload, request_type, counts) for field in _delimited(body) if field.number == 1]
    if not counts.kept:
        raise MalformedError(f"none of {counts.undecodable} items in {len(body)} bytes could be decoded")
    kept = b"".join(encode_field(1, pair.kept) for pair in pairs)
    left_out = b"".join(encode_field(1, pair.left_out) for pair in pairs if pair.left_out)
    return Salvaged(kept, counts.repaired, counts.undecodable, left_out)


def _resource_items(data: bytes, request_type: _RequestType, counts: _Counts) -> _Pair:
    kept: list[bytes] = []
    context: list[bytes] = []
    bad: list[bytes] = []
    for field in _delimited(data):
        if field.number == _CHILDREN_FIELD:
            scope = _scope_items(field.payload, request_type, counts)
            kept.append(encode_field(_CHILDREN_FIELD, scope.kept))
            if scope.left_out:
                bad.append(encode_field(_CHILDREN_FIELD, scope.left_out))
        else:
            kept.append(_context(field, request_type, _RESOURCE, counts))
            context.append(field.raw)
    return _Pair(b"".join(kept), b"".join([*context, *bad]) if bad else b"")


def _scope_items(data: bytes, request_type: _RequestType, counts: _Counts) -> _Pair:
    kept: list[bytes] = []
    context: list[bytes] = []
    bad: list[bytes] = []
    for field in _delimited(data):
        if field.number != _CHILDREN_FIELD:
            kept.append(_context(field, request_type, _SCOPE, counts))
            context.append(field.raw)
            continue
        item = _mend(field.payload, request_type, _ITEM)
        if item is None:
            counts.undecodable += 1
            bad.append(field.raw)
            continue
        counts.kept += 1
        counts.repaired += item != field.payload
        kept.append(encode_field(_CHILDREN_FIELD, item))
    return _Pair(b"".join(kept), b"".join([*context, *bad]) if bad else b"")


def _context(field: Field, request_type: _RequestType, path: Path, counts: _Counts) -> bytes:
    """Resource, scope or schema url; left out when nothing of it can be kept, because the items matter more."""
    is_context = field.number == path[-1]
    payload = (_mend(field.payload, request_type, path) or b"") if is_context else _utf8(field.payload)
    counts.repaired += payload != field.payload
    return encode_field(field.number, payload)


def _mend(payload: bytes, request_type: _RequestType, path: Path) -> bytes | None:
    """The payload if it parses, else a repaired one, else None."""
    if parses_at(payload, request_type, path):
        return payload
    descriptor = request_type.DESCRIPTOR
    for number in path:
        descriptor = cast("Descriptor", descriptor.fields_by_number[number].message_type)
    try:
        repaired = _repair(payload, descriptor, len(path))
    except MalformedError:
        return None
    return repaired if parses_at(repaired, request_type, path) else None


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
