"""Trace requests in the form that ClickHouse parses by itself to the rows that `trace_rows` would make.

ClickHouse's schema has no arrays but those of one plain string, and no kvlists; it keeps a key that comes twice, and
writes very large, very small and special doubles in its own way: those values become their text here. Most bodies have
none of them: that is found on the wire, without a look at every attribute. Invariant: the result is written by the
protobuf runtime, so every field that OTLP names is there once, whatever a sender wrote.
"""

import re
from collections.abc import MutableSequence
from typing import Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from .unique_keys import has_unique_keys
from .values import attributes, text
from .wire import MalformedError, fields, parse, read_varint, serialize

_COMPOUND: Final = frozenset({"array_value", "kvlist_value"})
_PLAIN_DOUBLES: Final = (1e-5, 1e15)
"""Between these magnitudes ClickHouse and the exporter write the same digits."""
_LONGEST_PLAIN: Final = 64
_COMPOUND_TYPES: Final = {0x2A: ArrayValue, 0x32: KeyValueList}
"""By the tag within a value."""


def _literal(*numbers: int) -> bytes:
    return re.escape(bytes(numbers))


_ONE_PLAIN_STRING: Final = b"|".join(
    _literal(length + 4, 0x0A, length + 2, 0x0A, length) + b"[A-Za-z0-9_./:-]{%d}" % length
    for length in range(1, _LONGEST_PLAIN + 1)
)
"""The content of an ArrayValue of one string that JSON does not escape, such as every ``finish_reasons``: the statement
that inserts spans makes its text itself."""
_CANDIDATE: Final = re.compile(
    # The tag of a KeyValue's value, its length, and the tag within: an array, a kvlist, or a double …
    rb"\x12(?=([\x80-\xff]{0,4}[\x00-\x7f])(?:\x2a(?!\x00|" + _ONE_PLAIN_STRING + rb")|\x32|"
    # … that is neither 0 nor between 2^-15 and 2^49 in magnitude, as its last byte says.
    rb"(?<=\x12\x09)\x21(?!\x00{8}|.{7}[\x3f-\x42\xbf-\xc2])))",
    re.DOTALL,
)


class Tidied(NamedTuple):
    """A request for ClickHouse."""

    body: bytes
    spans: int


def tidy(body: bytes) -> Tidied:
    """Bring a body into ClickHouse's form.

    Raises:
        MalformedError: It is no request.
    """
    request = parse(ExportTraceServiceRequest, body)
    spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    return Tidied(for_clickhouse(request), spans)


def for_clickhouse(request: ExportTraceServiceRequest) -> bytes:
    """The bytes of a request in ClickHouse's form; changes the request where it has to."""
    body = serialize(request)
    are_unique = has_unique_keys(request, body)
    if are_unique and not any(_is_value(body, found) for found in _CANDIDATE.finditer(body)):
        return body
    _tidy_request(request, are_unique=are_unique)
    return serialize(request)


def _is_value(body: bytes, found: re.Match[bytes]) -> bool:
    """Whether what looks like a value that ClickHouse cannot read is one: ids and texts may look so too."""
    start = found.end(1)
    compound = _COMPOUND_TYPES.get(body[start])
    if compound is None:
        return True
    try:
        size, _ = read_varint(body, found.start(1))
        length, at = read_varint(body, start + 1)
        if not at + length <= start + size <= len(body):
            return False
        parse(compound, body[at : at + length])
        # Behind it only fields may follow that OTLP does not name.
        return all(fields(body[at + length : start + size]))
    except MalformedError:
        return False


def _tidy_request(request: ExportTraceServiceRequest, *, are_unique: bool) -> None:
    for resource_spans in request.resource_spans:
        _tidy(resource_spans.resource.attributes, are_unique=are_unique)
        for scope_spans in resource_spans.scope_spans:
            _tidy(scope_spans.scope.attributes, are_unique=are_unique)
            for span in scope_spans.spans:
                _tidy(span.attributes, are_unique=are_unique)
                for event in span.events:
                    _tidy(event.attributes, are_unique=are_unique)
                for link in span.links:
                    _tidy(link.attributes, are_unique=are_unique)


def _tidy(pairs: MutableSequence[KeyValue], *, are_unique: bool) -> None:
    for pair in pairs:
        value = pair.value
        # Most values are strings that are not empty: asking for one first saves a third of the whole cost.
        if not value.string_value and _is_odd(value):
            value.string_value = text(value)
    if not are_unique and len({pair.key for pair in pairs}) < len(pairs):
        kept = attributes(pairs)
        del pairs[:]
        pairs.extend(KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in kept.items())


def _is_odd(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind != "double_value":
        return kind in _COMPOUND
    number = value.double_value
    return number != 0 and not _PLAIN_DOUBLES[0] <= abs(number) < _PLAIN_DOUBLES[1]
