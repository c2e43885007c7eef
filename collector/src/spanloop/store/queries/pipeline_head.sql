-- Until which start (nanoseconds) the spans of one trace within a stretch of time, the earliest first, are no more than so many bytes to read, how many spans that is, and how many the trace has there.
SELECT
    maxIf(started_ns, so_far <= {max_bytes:UInt64}) AS until_ns,
    countIf(so_far <= {max_bytes:UInt64}) AS spans,
    count() AS all_spans
FROM (
    SELECT
        toUnixTimestamp64Nano(Timestamp) AS started_ns,
        sum(byteSize(SpanAttributes) + byteSize(`Events.Attributes`) + 8 * (GenAiInputTokens + GenAiOutputTokens))
            OVER (ORDER BY Timestamp, SpanId ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS so_far
    FROM otel_traces
    WHERE TraceId = {trace_id:String}
        AND Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
)
