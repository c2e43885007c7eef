"""The attribute lists of a trace request, and the byte ranges of its spans, scopes and resources.

Invariant: ranges are in the order of the bytes, each with its end. Bytes between two ends belong to the later message,
or to no attribute.
"""

from collections.abc import Iterator, MutableSequence
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from .schema import field_path
from .wire import LENGTH_DELIMITED, FieldRange, MalformedError, Path, field_ranges, read_varint

_SPANS: Final = ("resource_spans", "scope_spans", "spans")
RESOURCE: Final = field_path("resource_spans", "resource", "attributes", "value")
SCOPE: Final = field_path("resource_spans", "scope_spans", "scope", "attributes", "value")
SPAN: Final = field_path(*_SPANS, "attributes", "value")
EVENT: Final = field_path(*_SPANS, "events", "attributes", "value")
LINK: Final = field_path(*_SPANS, "links", "attributes", "value")
"""Field numbers from a request down to an attribute's value."""

AttributeList: TypeAlias = tuple[Path, MutableSequence[KeyValue]]
_FIRST, _SECOND = 1, 2
"""Field numbers of a resource or scope, and of the messages beside it."""
_SCOPE_TAG: Final = _FIRST << 3 | LENGTH_DELIMITED
_SPAN_TAG: Final = _SECOND << 3 | LENGTH_DELIMITED


class MessageRange(NamedTuple):
    """A message with attributes."""

    end: int
    """Offset after the message."""
    span: Span | None
    lists: tuple[AttributeList, ...] = ()
    """The attribute lists of a resource or scope."""


def message_ranges(request: ExportTraceServiceRequest, body: bytes) -> Iterator[MessageRange]:
    """Yield the byte ranges of a request that the runtime serialised to ``body``.

    Raises:
        MalformedError: Other fields lie between them: groups, or fields that OTLP does not name.
    """
    resources = iter(request.resource_spans)
    for outer in _messages(body, 0, len(body)):
        if outer.number != _FIRST:
            continue
        resource_spans = next(resources)
        scopes = iter(resource_spans.scope_spans)
        for inner in _messages(body, outer.content, outer.end):
            if inner.number == _FIRST:
                yield MessageRange(inner.end, None, ((RESOURCE, resource_spans.resource.attributes),))
            elif inner.number == _SECOND:
                yield from _scope_ranges(next(scopes), body, inner)


def _scope_ranges(scope_spans: ScopeSpans, body: bytes, field: FieldRange) -> Iterator[MessageRange]:
    at = field.content
    if at < field.end and body[at] == _SCOPE_TAG:
        size, at = read_varint(body, at + 1)
        at += size
        yield MessageRange(at, None, ((SCOPE, scope_spans.scope.attributes),))
    for span in scope_spans.spans:
        if body[at] != _SPAN_TAG:
            raise MalformedError(f"no span at byte {at}")
        size, at = read_varint(body, at + 1)
        at += size
        yield MessageRange(at, span)


def _messages(body: bytes, start: int, end: int) -> Iterator[FieldRange]:
    return (field for field in field_ranges(body, start, end) if field.wire_type == LENGTH_DELIMITED)


def span_lists(span: Span) -> Iterator[AttributeList]:
    """Yield the attribute lists of a span."""
    yield SPAN, span.attributes
    for event in span.events:
        yield EVENT, event.attributes
    for link in span.links:
        yield LINK, link.attributes


def attribute_lists(request: ExportTraceServiceRequest) -> Iterator[AttributeList]:
    """Yield all attribute lists of a request."""
    for resource_spans in request.resource_spans:
        yield RESOURCE, resource_spans.resource.attributes
        for scope_spans in resource_spans.scope_spans:
            yield SCOPE, scope_spans.scope.attributes
            for span in scope_spans.spans:
                yield from span_lists(span)
