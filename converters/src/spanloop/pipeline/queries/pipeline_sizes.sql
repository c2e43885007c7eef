-- Number of spans of each given trace in a time range (nanoseconds), first and last start, and the approximate bytes of spans, log events and captured tokens. Services and scopes of model calls, and whether all of them have an episode id, their own or the only one of the trace.
WITH (SELECT (min(first_at), max(last_at)) FROM log_summaries WHERE trace_id IN {trace_ids:Array(String)}) AS logs_at
SELECT
    trace_id,
    sum(spans) AS spans,
    sum(bytes) AS bytes,
    min(started_ns) AS started_ns,
    max(ended_ns) AS ended_ns,
    groupUniqArrayArray(callers) AS callers,
    max(is_held) AS is_held
FROM (
    SELECT
        TraceId AS trace_id,
        count() AS spans,
        sum(byteSize(SpanAttributes) + byteSize(`Events.Attributes`) + 8 * (GenAiInputTokens + GenAiOutputTokens)) AS bytes,
        toUnixTimestamp64Nano(min(Timestamp)) AS started_ns,
        toUnixTimestamp64Nano(max(Timestamp)) AS ended_ns,
        groupUniqArrayIf((toString(ServiceName), ScopeName), IsModelCall) AS callers,
        uniqExactIf(SpanloopEpisodeId, SpanloopEpisodeId != '') = 1 OR countIf(IsModelCall AND SpanloopEpisodeId = '') = 0 AS is_held
    FROM otel_traces
    WHERE TraceId IN {trace_ids:Array(String)}
        AND Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    GROUP BY TraceId
    UNION ALL
    SELECT
        TraceId AS trace_id,
        0 AS spans,
        sum(length(Body) + byteSize(LogAttributes)) AS bytes,
        9223372036854775807 AS started_ns,
        -9223372036854775808 AS ended_ns,
        [] AS callers,
        false AS is_held
    FROM otel_logs
    WHERE TraceId IN {trace_ids:Array(String)}
        AND SpanEventName != ''
        AND Timestamp >= logs_at.1
        AND Timestamp <= logs_at.2
    GROUP BY TraceId
)
GROUP BY trace_id
HAVING spans > 0
ORDER BY started_ns, trace_id
