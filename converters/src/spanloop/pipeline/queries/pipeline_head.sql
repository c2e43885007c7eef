-- Latest start (nanoseconds) up to which the spans of one trace in a time range, earliest first, stay within max_bytes, the number of these spans, and the number of all spans.
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
