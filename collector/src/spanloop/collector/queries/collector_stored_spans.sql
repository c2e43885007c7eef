-- Ids of the stored spans of some traces in a range of time (nanoseconds since the epoch), each once.
SELECT DISTINCT TraceId, SpanId
FROM otel_traces
WHERE TraceId IN {trace_ids:Array(String)}
    AND Timestamp >= fromUnixTimestamp64Nano({first_ns:Int64})
    AND Timestamp <= fromUnixTimestamp64Nano({last_ns:Int64})
