"""Encode trace requests so that ClickHouse parses them to the rows that `span_rows` would make.

ClickHouse's statement reads no kvlists and no arrays except those of one plain string. It keeps duplicate keys, and
formats very large, very small and special doubles differently. Such values become text here; most bodies have none.
Invariant: the protobuf runtime writes the result, so every field that OTLP names occurs once; its arrays and kvlists
are text, or were checked byte by byte.
"""

from collections.abc import Iterable, MutableSequence
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from .attribute_values import attributes, text
from .envelope import attribute_lists
from .number_arrays import number_texts
from .schema import SHALLOW_REQUEST, array_bytes
from .unique_keys import has_unique_keys
from .unsupported_values import LocatedValue, compound_values, unsupported_values
from .wire import MalformedError, Path, parse, parses_at, serialize


class EncodedRequest(NamedTuple):
    """A request that ClickHouse can parse."""

    body: bytes
    spans: int


def encode_body(body: bytes) -> EncodedRequest:
    """Encode a body for ClickHouse.

    Raises:
        MalformedError: The body is not a trace request.
    """
    request = parse(SHALLOW_REQUEST, body)
    spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    return EncodedRequest(encode_request(request, body), spans)


def encode_request(request: ExportTraceServiceRequest, body: bytes) -> bytes:
    """Return a request's bytes, encoded for ClickHouse.

    Args:
        request: A `SHALLOW_REQUEST`; the function may change it.
        body: The bytes that it was parsed from; returned when no value needs encoding.

    Raises:
        MalformedError: An array or a kvlist is not protobuf.
    """
    if serialize(request) != body:
        # A sender with another encoding, or a repeated field: parse and write it in full.
        body = serialize(parse(ExportTraceServiceRequest, body))
        request = parse(SHALLOW_REQUEST, body)
    if has_unique_keys(request, body):
        values = unsupported_values(request, body)
        if not values:
            return body
        _make_texts(values)
    else:
        _make_texts(compound_values(request))
        for _, pairs in attribute_lists(request):
            _keep_last(pairs)
    return serialize(request)


def _make_texts(values: Iterable[LocatedValue]) -> None:
    numbers = number_texts([array_bytes(value) for value, _ in values])
    for (value, path), numbers_text in zip(values, numbers, strict=True):
        value.string_value = numbers_text or _text(value, path)


def _text(value: AnyValue, path: Path) -> str:
    """Return the text of a shallow value at a path in a request."""
    raw = serialize(value)
    if not parses_at(raw, ExportTraceServiceRequest, path):
        raise MalformedError(f"a value of {len(raw)} bytes in an attribute: no UTF-8, cut off, or nested too deeply")
    return text(parse(AnyValue, raw))


def _keep_last(pairs: MutableSequence[KeyValue]) -> None:
    if len({pair.key for pair in pairs}) == len(pairs):
        return
    last_values = attributes(pairs)
    del pairs[len(last_values) :]
    for pair, (key, value) in zip(pairs, last_values.items(), strict=True):
        pair.key, pair.value.string_value = key, value
