-- Traces that share an episode, conversation or (with by_session) session id with the given traces in a time window (nanoseconds), earliest first, with the running number of spans with that id. The given traces' own spans lie between two times.
WITH
    fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC') AS window_end,
    (
        SELECT (
            groupUniqArrayIf(SpanloopEpisodeId, SpanloopEpisodeId != ''),
            groupUniqArrayIf(GenAiConversationId, GenAiConversationId != ''),
            groupUniqArrayIf(SessionId, {by_session:Bool} AND SessionId != '')
        )
        FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)}
            AND Timestamp >= fromUnixTimestamp64Nano({given_from_ns:Int64}, 'UTC')
            AND Timestamp <= fromUnixTimestamp64Nano({given_until_ns:Int64}, 'UTC')
    ) AS given
SELECT
    trace_id,
    max(so_far) AS spans_so_far
FROM (
    SELECT
        trace_id,
        sum(spans) OVER (
            PARTITION BY kind, id ORDER BY started, trace_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS so_far
    FROM (
        SELECT 'episode' AS kind, SpanloopEpisodeId AS id, TraceId AS trace_id, count() AS spans, min(Timestamp) AS started
        FROM otel_traces
        WHERE notEmpty(given.1) AND Timestamp >= window_start AND Timestamp <= window_end
            AND SpanloopEpisodeId IN (SELECT arrayJoin(given.1))
        GROUP BY id, trace_id
        UNION ALL
        SELECT 'conversation' AS kind, GenAiConversationId AS id, TraceId AS trace_id, count() AS spans, min(Timestamp) AS started
        FROM otel_traces
        WHERE notEmpty(given.2) AND Timestamp >= window_start AND Timestamp <= window_end
            AND GenAiConversationId IN (SELECT arrayJoin(given.2))
        GROUP BY id, trace_id
        UNION ALL
        SELECT 'session' AS kind, SessionId AS id, TraceId AS trace_id, count() AS spans, min(Timestamp) AS started
        FROM otel_traces
        WHERE notEmpty(given.3) AND Timestamp >= window_start AND Timestamp <= window_end
            AND SessionId IN (SELECT arrayJoin(given.3))
        GROUP BY id, trace_id
    )
)
WHERE so_far <= {max_spans:UInt64} OR trace_id IN {trace_ids:Array(String)}
GROUP BY trace_id
