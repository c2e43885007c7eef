-- How often each log record of a range of time (nanoseconds since the epoch) is stored, by time, ids and a hash of its body.
SELECT
    toUnixTimestamp64Nano(Timestamp) AS at_ns,
    TraceId,
    SpanId,
    EventName,
    Body,
    count() AS stored
FROM otel_logs
WHERE Timestamp >= fromUnixTimestamp64Nano({first_ns:Int64})
    AND Timestamp <= fromUnixTimestamp64Nano({last_ns:Int64})
GROUP BY ALL
