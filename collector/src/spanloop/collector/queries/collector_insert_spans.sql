-- Parses an OTLP trace request (protobuf, the data of this statement) into otel_traces: ClickHouse reads it itself.
-- The schema is OTLP's, without array and kvlist values, which the collector has made JSON text before; field numbers
-- are those of opentelemetry-proto. One request is one row of input(), so all of its spans are one block.
INSERT INTO otel_traces (
    Timestamp, TraceId, SpanId, ParentSpanId, TraceState, SpanName, SpanKind, ServiceName, ResourceAttributes,
    ScopeName, ScopeVersion, SpanAttributes, Duration, StatusCode, StatusMessage,
    Events.Timestamp, Events.Name, Events.Attributes,
    Links.TraceId, Links.SpanId, Links.TraceState, Links.Attributes,
    TraceFlags, ResourceSchemaUrl, ScopeSchemaUrl, ScopeAttributes,
    DroppedAttributesCount, DroppedEventsCount, DroppedLinksCount
)
SETTINGS
    format_schema_source = 'string',
    format_schema_message_name = 'Request',
    format_schema = 'syntax = "proto2";
message Value {
  optional string string_value = 1; optional bool bool_value = 2; optional int64 int_value = 3;
  optional double double_value = 4; optional bytes array_value = 5; optional bytes bytes_value = 7;
}
message Pair { optional string key = 1; optional Value value = 2; }
message Resource { repeated Pair attributes = 1; }
message Scope { optional string name = 1; optional string version = 2; repeated Pair attributes = 3; }
message Event { optional fixed64 time_unix_nano = 1; optional string name = 2; repeated Pair attributes = 3; }
message Link {
  optional bytes trace_id = 1; optional bytes span_id = 2; optional string trace_state = 3;
  repeated Pair attributes = 4;
}
message Status { optional string message = 2; optional int32 code = 3; }
message Span {
  optional bytes trace_id = 1; optional bytes span_id = 2; optional string trace_state = 3;
  optional bytes parent_span_id = 4; optional string name = 5; optional int32 kind = 6;
  optional fixed64 start_time_unix_nano = 7; optional fixed64 end_time_unix_nano = 8;
  repeated Pair attributes = 9; optional uint32 dropped_attributes_count = 10;
  repeated Event events = 11; optional uint32 dropped_events_count = 12;
  repeated Link links = 13; optional uint32 dropped_links_count = 14;
  optional Status status = 15; optional fixed32 flags = 16;
}
message ScopeSpans { optional Scope scope = 1; repeated Span spans = 2; optional string schema_url = 3; }
message ResourceSpans {
  optional Resource resource = 1; repeated ScopeSpans scope_spans = 2; optional string schema_url = 3;
}
message Request { repeated ResourceSpans resource_spans = 1; }
',
    max_block_size = 10000000,
    min_insert_block_size_rows = 0,
    min_insert_block_size_bytes = 0,
    throw_if_no_data_to_insert = 0
WITH
    (value) -> multiIf(
        isNotNull(value.string_value), assumeNotNull(value.string_value),
        isNotNull(value.int_value), toString(assumeNotNull(value.int_value)),
        isNotNull(value.double_value), toString(assumeNotNull(value.double_value)),
        isNotNull(value.bool_value), if(assumeNotNull(value.bool_value), 'true', 'false'),
        -- One string: tag and length of the array's value, of the string, then the string.
        isNotNull(value.array_value),
            if(value.array_value = '', '[]', concat('["', substring(assumeNotNull(value.array_value), 5), '"]')),
        isNotNull(value.bytes_value), base64Encode(assumeNotNull(value.bytes_value)),
        ''
    ) AS as_text,
    (pairs) -> CAST(
        arrayMap(pair -> (pair.key, as_text(pair.value)), pairs), 'Map(LowCardinality(String), String)'
    ) AS as_map
SELECT
    fromUnixTimestamp64Nano(toInt64(span.start_time_unix_nano)),
    lower(hex(span.trace_id)),
    lower(hex(span.span_id)),
    if(span.parent_span_id = unhex('0000000000000000'), '', lower(hex(span.parent_span_id))),
    span.trace_state,
    span.name,
    if(span.kind BETWEEN 0 AND 5,
       ['Unspecified', 'Internal', 'Server', 'Client', 'Producer', 'Consumer'][span.kind + 1], ''),
    resource_attributes['service.name'],
    resource_attributes,
    scope.name,
    scope.version,
    as_map(span.attributes),
    if(span.end_time_unix_nano > span.start_time_unix_nano, span.end_time_unix_nano - span.start_time_unix_nano, 0),
    if(span.status.code BETWEEN 0 AND 2, ['Unset', 'Ok', 'Error'][span.status.code + 1], ''),
    span.status.message,
    arrayMap(event -> fromUnixTimestamp64Nano(toInt64(event.time_unix_nano)), span.events),
    arrayMap(event -> event.name, span.events),
    arrayMap(event -> as_map(event.attributes), span.events),
    arrayMap(link -> lower(hex(link.trace_id)), span.links),
    arrayMap(link -> lower(hex(link.span_id)), span.links),
    arrayMap(link -> link.trace_state, span.links),
    arrayMap(link -> as_map(link.attributes), span.links),
    span.flags,
    resource_schema_url,
    scope_schema_url,
    scope_attributes,
    span.dropped_attributes_count,
    span.dropped_events_count,
    span.dropped_links_count
FROM (
    SELECT
        resource_attributes, resource_schema_url, scope_spans.schema_url AS scope_schema_url,
        scope_spans.scope AS scope, as_map(scope_spans.scope.attributes) AS scope_attributes,
        arrayJoin(scope_spans.spans) AS span
    FROM (
        SELECT
            as_map(resource_spans.resource.attributes) AS resource_attributes,
            resource_spans.schema_url AS resource_schema_url,
            arrayJoin(resource_spans.scope_spans) AS scope_spans
        FROM (
            SELECT arrayJoin(resource_spans) AS resource_spans
            FROM input('resource_spans Array(Tuple(
                resource Tuple(attributes Array(Tuple(key String, value Tuple(
                    string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                    double_value Nullable(Float64), array_value Nullable(String), bytes_value Nullable(String))))),
                scope_spans Array(Tuple(
                    scope Tuple(name String, version String, attributes Array(Tuple(key String, value Tuple(
                        string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                        double_value Nullable(Float64), array_value Nullable(String), bytes_value Nullable(String))))),
                    spans Array(Tuple(
                        trace_id String, span_id String, trace_state String, parent_span_id String, name String,
                        kind Int32, start_time_unix_nano UInt64, end_time_unix_nano UInt64,
                        attributes Array(Tuple(key String, value Tuple(
                            string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                            double_value Nullable(Float64), array_value Nullable(String), bytes_value Nullable(String)))),
                        dropped_attributes_count UInt32,
                        events Array(Tuple(time_unix_nano UInt64, name String,
                            attributes Array(Tuple(key String, value Tuple(
                                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                                double_value Nullable(Float64), array_value Nullable(String), bytes_value Nullable(String)))))),
                        dropped_events_count UInt32,
                        links Array(Tuple(trace_id String, span_id String, trace_state String,
                            attributes Array(Tuple(key String, value Tuple(
                                string_value Nullable(String), bool_value Nullable(Bool), int_value Nullable(Int64),
                                double_value Nullable(Float64), array_value Nullable(String), bytes_value Nullable(String)))))),
                        dropped_links_count UInt32, status Tuple(message String, code Int32), flags UInt32)),
                    schema_url String)),
                schema_url String))')
        )
    )
)
FORMAT ProtobufSingle
