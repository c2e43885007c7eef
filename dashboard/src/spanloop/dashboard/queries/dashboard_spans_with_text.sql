-- The spans of some traces that have a text in an attribute, an event or a message.
SELECT SpanId AS span_id
FROM otel_traces
WHERE TraceId IN {trace_ids:Array(String)}
    AND Timestamp >= toDateTime64({from_s:Int64}, 9, 'UTC')
    AND Timestamp < toDateTime64({until_s:Int64}, 9, 'UTC')
    AND (
        arrayExists(value -> positionCaseInsensitiveUTF8(value, {text:String}) > 0, mapValues(SpanAttributes))
        OR arrayExists(
            event -> arrayExists(value -> positionCaseInsensitiveUTF8(value, {text:String}) > 0, mapValues(event)),
            Events.Attributes
        )
        OR positionCaseInsensitiveUTF8(StatusMessage, {text:String}) > 0
    )
LIMIT {max_rows:UInt32}
