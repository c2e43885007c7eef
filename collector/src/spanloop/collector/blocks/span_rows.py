"""Spans as rows of ``otel_traces``, formatted as the OpenTelemetry ClickHouse exporter does.

Invariant: one row for each span of the requests, in their order. `validation` has checked ids and timestamps.
"""

from typing import Final, NamedTuple

import polars as pl
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from spanloop.foundation.tables.arrivals import OTEL_TRACES
from spanloop.semconv.attributes import SERVICE_NAME

from ..otlp.attribute_values import attributes
from .arrow_columns import (
    ATTRIBUTES,
    Column,
    ListOffsets,
    MapColumn,
    build_frame,
    datetime_column,
    names_of_type,
    number_column,
    string_column,
)

SPAN_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
STATUS_CODES: Final = ("Unset", "Ok", "Error")
_NO_PARENT: Final = bytes(8)


class _Resource(NamedTuple):
    attributes: dict[str, str]
    schema_url: str


class _Scope(NamedTuple):
    name: str
    version: str
    attributes: dict[str, str]
    schema_url: str


class _Events:
    def __init__(self) -> None:
        self._rows = ListOffsets()
        self._times: list[int] = []
        self._names: list[str] = []
        self._attributes = MapColumn()

    def add(self, span: Span) -> None:
        self._rows.add(len(span.events))
        for event in span.events:
            self._times.append(event.time_unix_nano)
            self._names.append(event.name)
            self._attributes.add(attributes(event.attributes))

    def to_arrow(self) -> dict[str, Column]:
        return {
            "Events.Timestamp": self._rows.wrap(datetime_column(self._times)),
            "Events.Name": self._rows.wrap(string_column(self._names)),
            "Events.Attributes": self._rows.wrap(self._attributes.to_arrow()),
        }


class _Links:
    def __init__(self) -> None:
        self._rows = ListOffsets()
        self._trace_ids: list[str] = []
        self._span_ids: list[str] = []
        self._states: list[str] = []
        self._attributes = MapColumn()

    def add(self, span: Span) -> None:
        self._rows.add(len(span.links))
        for link in span.links:
            self._trace_ids.append(link.trace_id.hex())
            self._span_ids.append(link.span_id.hex())
            self._states.append(link.trace_state)
            self._attributes.add(attributes(link.attributes))

    def to_arrow(self) -> dict[str, Column]:
        return {
            "Links.TraceId": self._rows.wrap(string_column(self._trace_ids)),
            "Links.SpanId": self._rows.wrap(string_column(self._span_ids)),
            "Links.TraceState": self._rows.wrap(string_column(self._states)),
            "Links.Attributes": self._rows.wrap(self._attributes.to_arrow()),
        }


class SpanRows:
    """Collects the spans of requests as rows."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {name: [] for name in names_of_type(OTEL_TRACES, pl.String())}
        self._events, self._links = _Events(), _Links()
        self._starts: list[int] = []
        self._durations: list[int] = []
        self._counts: dict[str, list[int]] = {name: [] for name in names_of_type(OTEL_TRACES, pl.UInt32())}
        self._maps = {name: MapColumn() for name in names_of_type(OTEL_TRACES, ATTRIBUTES)}

    def add(self, request: ExportTraceServiceRequest) -> None:
        """Append every span of a request."""
        for resource_spans in request.resource_spans:
            resource = _read_resource(resource_spans)
            for scope_spans in resource_spans.scope_spans:
                scope = _read_scope(scope_spans)
                for span in scope_spans.spans:
                    self._add_span(span, resource, scope)

    def to_frame(self) -> pl.DataFrame:
        """Return all rows so far, with the insertable columns of ``otel_traces`` except ``IngestedAt``."""
        columns = {name: string_column(values) for name, values in self._texts.items()}
        columns |= {name: column.to_arrow() for name, column in self._maps.items()}
        columns |= {name: number_column(values, pl.UInt32()) for name, values in self._counts.items()}
        columns["Timestamp"] = datetime_column(self._starts)
        columns["Duration"] = number_column(self._durations, pl.UInt64())
        columns |= self._events.to_arrow() | self._links.to_arrow()
        return build_frame(columns)

    def _add_span(self, span: Span, resource: _Resource, scope: _Scope) -> None:
        texts = self._texts
        texts["TraceId"].append(span.trace_id.hex())
        texts["SpanId"].append(span.span_id.hex())
        texts["ParentSpanId"].append("" if span.parent_span_id == _NO_PARENT else span.parent_span_id.hex())
        texts["TraceState"].append(span.trace_state)
        texts["SpanName"].append(span.name)
        texts["SpanKind"].append(_enum_name(SPAN_KINDS, span.kind))
        texts["ServiceName"].append(resource.attributes.get(SERVICE_NAME, ""))
        texts["ScopeName"].append(scope.name)
        texts["ScopeVersion"].append(scope.version)
        texts["StatusCode"].append(_enum_name(STATUS_CODES, span.status.code))
        texts["StatusMessage"].append(span.status.message)
        texts["ResourceSchemaUrl"].append(resource.schema_url)
        texts["ScopeSchemaUrl"].append(scope.schema_url)
        self._starts.append(span.start_time_unix_nano)
        # A clock that was set back gives an end before the start, which the exporter stores as almost 2^64.
        self._durations.append(max(0, span.end_time_unix_nano - span.start_time_unix_nano))
        counts = self._counts
        counts["TraceFlags"].append(span.flags)
        counts["DroppedAttributesCount"].append(span.dropped_attributes_count)
        counts["DroppedEventsCount"].append(span.dropped_events_count)
        counts["DroppedLinksCount"].append(span.dropped_links_count)
        self._maps["ResourceAttributes"].add(resource.attributes)
        self._maps["ScopeAttributes"].add(scope.attributes)
        self._maps["SpanAttributes"].add(attributes(span.attributes))
        self._events.add(span)
        self._links.add(span)


def _read_resource(resource_spans: ResourceSpans) -> _Resource:
    return _Resource(attributes(resource_spans.resource.attributes), resource_spans.schema_url)


def _read_scope(scope_spans: ScopeSpans) -> _Scope:
    scope = scope_spans.scope
    return _Scope(scope.name, scope.version, attributes(scope.attributes), scope_spans.schema_url)


def _enum_name(names: tuple[str, ...], number: int) -> str:
    """Return the exporter's text of an enum value; empty for a value that the specification does not define."""
    return names[number] if 0 <= number < len(names) else ""
