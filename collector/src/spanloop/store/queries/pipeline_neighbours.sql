-- Model calls without an episode id that the given traces may continue or be continued by: same services, near in time.
WITH
    fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC') AS window_end
SELECT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= window_start AND Timestamp <= window_end
    AND SpanloopEpisodeId = ''
    AND GenAiOperation IN ('chat', 'text_completion', 'generate_content')
    AND ServiceName IN (
        SELECT ServiceName FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)} AND Timestamp >= window_start AND Timestamp <= window_end
            AND SpanloopEpisodeId = ''
            AND GenAiOperation IN ('chat', 'text_completion', 'generate_content')
    )
GROUP BY TraceId
ORDER BY min(abs(toUnixTimestamp64Nano(Timestamp) - {middle_ns:Int64})), TraceId
LIMIT {max_traces:UInt32}
