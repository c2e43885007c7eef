-- Log records of the given traces' spans: messages and exceptions that instrumentors send as events; text is made valid UTF-8.
-- The traces' log summaries give the time range to read.
WITH (SELECT (min(first_at), max(last_at)) FROM log_summaries WHERE trace_id IN {trace_ids:Array(String)}) AS logs_at
SELECT
    Timestamp,
    TraceId,
    SpanId,
    SpanEventName AS EventName,
    toValidUTF8(source.Body) AS Body,
    CAST(mapApply((k, v) -> (toValidUTF8(k), toValidUTF8(v)), source.LogAttributes), 'Map(String, String)') AS LogAttributes,
    IngestedAt
FROM otel_logs AS source
WHERE source.Timestamp >= logs_at.1
    AND source.Timestamp <= logs_at.2
    AND source.TraceId IN {trace_ids:Array(String)}
    AND SpanEventName != ''
