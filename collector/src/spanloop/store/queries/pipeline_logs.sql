-- The log records that tell of a span of the given traces: messages and exceptions that instrumentors send as events; text is made valid UTF-8.
SELECT
    Timestamp,
    TraceId,
    SpanId,
    SpanEventName AS EventName,
    toValidUTF8(source.Body) AS Body,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), source.LogAttributes), 'Map(String, String)') AS LogAttributes,
    IngestedAt
FROM otel_logs AS source
WHERE source.TraceId IN {trace_ids:Array(String)} AND SpanEventName != ''
