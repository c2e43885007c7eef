-- The stored log records of the given traces (an empty id: records without a trace) in a time range (nanoseconds, both ends included).
SELECT
    TraceId,
    SpanId,
    Timestamp,
    ServiceName,
    EventName,
    Body,
    LogAttributes
FROM otel_logs
WHERE TraceId IN {trace_ids:Array(String)}
    AND Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
