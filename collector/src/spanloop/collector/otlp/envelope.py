"""Where in the bytes of a trace request each span, scope and resource lies.

Invariant: the messages are given in the order of the bytes, each with the offset behind it; what lies between two such
offsets belongs to the later message, or to nobody's attributes.
"""

from collections.abc import Iterator, MutableSequence
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from .schema import field_path
from .wire import LENGTH_DELIMITED, MalformedError, Path, Place, places, read_varint

_SPANS: Final = ("resource_spans", "scope_spans", "spans")
RESOURCE: Final = field_path("resource_spans", "resource", "attributes", "value")
SCOPE: Final = field_path("resource_spans", "scope_spans", "scope", "attributes", "value")
SPAN: Final = field_path(*_SPANS, "attributes", "value")
EVENT: Final = field_path(*_SPANS, "events", "attributes", "value")
LINK: Final = field_path(*_SPANS, "links", "attributes", "value")
"""Field numbers from a request down to an attribute's value."""

AttributeList: TypeAlias = tuple[Path, MutableSequence[KeyValue]]
_FIRST, _SECOND = 1, 2
"""Field numbers: of a resource and of a scope, and of what they are around."""
_SCOPE_TAG: Final = _FIRST << 3 | LENGTH_DELIMITED
_SPAN_TAG: Final = _SECOND << 3 | LENGTH_DELIMITED


class Part(NamedTuple):
    """A message that has attributes."""

    end: int
    """Offset behind it."""
    span: Span | None
    others: tuple[AttributeList, ...] = ()
    """Of a resource or a scope."""


def parts(request: ExportTraceServiceRequest, body: bytes) -> Iterator[Part]:
    """The parts of a request that the runtime wrote as these bytes.

    Raises:
        MalformedError: Other fields lie between them: groups, or what OTLP does not name.
    """
    resources = iter(request.resource_spans)
    for outer in _messages(body, 0, len(body)):
        if outer.number != _FIRST:
            continue
        resource_spans = next(resources)
        scopes = iter(resource_spans.scope_spans)
        for inner in _messages(body, outer.content, outer.end):
            if inner.number == _FIRST:
                yield Part(inner.end, None, ((RESOURCE, resource_spans.resource.attributes),))
            elif inner.number == _SECOND:
                yield from _parts_of_scope(next(scopes), body, inner)


def _parts_of_scope(scope_spans: ScopeSpans, body: bytes, place: Place) -> Iterator[Part]:
    at = place.content
    if at < place.end and body[at] == _SCOPE_TAG:
        size, at = read_varint(body, at + 1)
        at += size
        yield Part(at, None, ((SCOPE, scope_spans.scope.attributes),))
    for span in scope_spans.spans:
        if body[at] != _SPAN_TAG:
            raise MalformedError(f"no span at byte {at}")
        size, at = read_varint(body, at + 1)
        at += size
        yield Part(at, span)


def _messages(body: bytes, start: int, end: int) -> Iterator[Place]:
    return (place for place in places(body, start, end) if place.wire_type == LENGTH_DELIMITED)


def span_lists(span: Span) -> Iterator[AttributeList]:
    """The attribute lists of a span."""
    yield SPAN, span.attributes
    for event in span.events:
        yield EVENT, event.attributes
    for link in span.links:
        yield LINK, link.attributes


def attribute_lists(request: ExportTraceServiceRequest) -> Iterator[AttributeList]:
    """All of a request."""
    for resource_spans in request.resource_spans:
        yield RESOURCE, resource_spans.resource.attributes
        for scope_spans in resource_spans.scope_spans:
            yield SCOPE, scope_spans.scope.attributes
            for span in scope_spans.spans:
                yield from span_lists(span)
