"""Trace requests in the form that ClickHouse parses by itself to the rows that `trace_rows` would make.

ClickHouse's schema has no arrays and kvlists, keeps a key that comes twice, and writes very large, very small and
special doubles in its own way: those values become their text here. Invariant: the result is written by the protobuf
runtime, so every field that OTLP names is there once, whatever a sender wrote.
"""

from collections.abc import MutableSequence
from typing import Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from .values import attributes, text
from .wire import parse, serialize

_COMPOUND: Final = frozenset({"array_value", "kvlist_value"})
_PLAIN_DOUBLES: Final = (1e-5, 1e15)
"""Between these magnitudes ClickHouse and the exporter write the same digits."""


class Tidied(NamedTuple):
    """A request for ClickHouse."""

    body: bytes
    spans: int


def tidy(body: bytes) -> Tidied:
    """Rewrite a request.

    Raises:
        MalformedError: It is none.
    """
    request = parse(ExportTraceServiceRequest, body)
    spans = 0
    for resource_spans in request.resource_spans:
        _tidy(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            _tidy(scope_spans.scope.attributes)
            spans += len(scope_spans.spans)
            for span in scope_spans.spans:
                _tidy(span.attributes)
                for event in span.events:
                    _tidy(event.attributes)
                for link in span.links:
                    _tidy(link.attributes)
    return Tidied(serialize(request), spans)


def _tidy(pairs: MutableSequence[KeyValue]) -> None:
    keys: set[str] = set()
    for pair in pairs:
        keys.add(pair.key)
        value = pair.value
        # Most values are strings that are not empty: asking for one first saves a third of the whole cost.
        if not value.string_value and _is_odd(value):
            value.string_value = text(value)
    if len(keys) < len(pairs):
        kept = attributes(pairs)
        del pairs[:]
        pairs.extend(KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in kept.items())


def _is_odd(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind != "double_value":
        return kind in _COMPOUND
    number = value.double_value
    return number != 0 and not _PLAIN_DOUBLES[0] <= abs(number) < _PLAIN_DOUBLES[1]
