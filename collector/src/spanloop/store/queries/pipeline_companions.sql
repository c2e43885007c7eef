-- Traces of the sessions of the given traces, of those sessions that a score judges as a whole: only together can it be told whom. No more than so many: they hold several episodes.
SELECT DISTINCT TraceId AS trace_id
FROM otel_traces
WHERE (SessionId != '' OR GenAiConversationId != '') AND hasAny(
    [SessionId, GenAiConversationId],
    (
        SELECT groupUniqArray(session)
        FROM (SELECT arrayJoin([SessionId, GenAiConversationId]) AS session FROM otel_traces WHERE TraceId IN {trace_ids:Array(String)})
        WHERE session IN (
            SELECT session_id FROM scores
            WHERE session_id != '' AND trace_id = '' AND response_id = '' AND episode_key = ''
        )
    )
)
ORDER BY TraceId
LIMIT {max_traces:UInt64}
