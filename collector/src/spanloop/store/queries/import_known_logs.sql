-- What the stored log records of the given traces (an empty id: of none) say, within a stretch of time (nanoseconds, both ends in it).
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
