-- Traces that share an episode, conversation or (where it counts) session id with the given ones, within a window of time (nanoseconds).
WITH
    fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC') AS window_end
SELECT DISTINCT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= window_start AND Timestamp <= window_end
    AND (
        (SpanloopEpisodeId != '' AND SpanloopEpisodeId IN (
            SELECT SpanloopEpisodeId FROM otel_traces
            WHERE TraceId IN {trace_ids:Array(String)} AND Timestamp >= window_start AND Timestamp <= window_end
        ))
        OR (GenAiConversationId != '' AND GenAiConversationId IN (
            SELECT GenAiConversationId FROM otel_traces
            WHERE TraceId IN {trace_ids:Array(String)} AND Timestamp >= window_start AND Timestamp <= window_end
        ))
        OR ({by_session:Bool} AND SessionId != '' AND SessionId IN (
            SELECT SessionId FROM otel_traces
            WHERE TraceId IN {trace_ids:Array(String)} AND Timestamp >= window_start AND Timestamp <= window_end
        ))
    )
