"""Trace requests in the form that ClickHouse parses by itself to the rows that `span_rows` would make.

ClickHouse's schema has no arrays but those of one plain string, and no kvlists; it keeps a key that comes twice, and
writes very large, very small and special doubles in its own way: those values become their text here. Most bodies have
none of them. Invariant: the result is written by the protobuf runtime, so every field that OTLP names is there once,
whatever a sender wrote; arrays and kvlists are texts in it, or were looked at byte by byte.
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
from .unsupported_values import Found, compound_values, odd_values
from .wire import MalformedError, Path, parse, parses_at, serialize


class Tidied(NamedTuple):
    """A request for ClickHouse."""

    body: bytes
    spans: int


def tidy(body: bytes) -> Tidied:
    """Bring a body into ClickHouse's form.

    Raises:
        MalformedError: It is no request.
    """
    request = parse(SHALLOW_REQUEST, body)
    spans = sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans)
    return Tidied(for_clickhouse(request, body), spans)


def for_clickhouse(request: ExportTraceServiceRequest, body: bytes) -> bytes:
    """A request's bytes in ClickHouse's form.

    Args:
        request: A `SHALLOW_REQUEST`, which may be changed.
        body: What it was read from; given back when nothing is to be done.

    Raises:
        MalformedError: The body is no request: something within an array or a kvlist.
    """
    if serialize(request) != body:
        # As senders write it that encode otherwise, or as nobody should write it.
        body = serialize(parse(ExportTraceServiceRequest, body))
        request = parse(SHALLOW_REQUEST, body)
    if has_unique_keys(request, body):
        found = odd_values(request, body)
        if not found:
            return body
        _make_texts(found)
    else:
        _make_texts(compound_values(request))
        for _, pairs in attribute_lists(request):
            _keep_last(pairs)
    return serialize(request)


def _make_texts(found: Iterable[Found]) -> None:
    numbers = number_texts([array_bytes(value) for value, _ in found])
    for (value, path), of_numbers in zip(found, numbers, strict=True):
        value.string_value = of_numbers or _text(value, path)


def _text(value: AnyValue, path: Path) -> str:
    """Of a shallow value at its place in a request."""
    raw = serialize(value)
    if not parses_at(raw, ExportTraceServiceRequest, path):
        raise MalformedError(f"a value of {len(raw)} bytes in an attribute: no UTF-8, cut off, or nested too deeply")
    return text(parse(AnyValue, raw))


def _keep_last(pairs: MutableSequence[KeyValue]) -> None:
    if len({pair.key for pair in pairs}) == len(pairs):
        return
    kept = attributes(pairs)
    del pairs[len(kept) :]
    for pair, (key, value) in zip(pairs, kept.items(), strict=True):
        pair.key, pair.value.string_value = key, value
