-- Traces of the sessions of the given traces, whose spans lie between two times (nanoseconds), of those sessions that a score judges as a whole: only together can it be told whom. No more than so many: they hold several episodes.
WITH (
    SELECT groupUniqArray(session)
    FROM (
        SELECT arrayJoin([SessionId, GenAiConversationId]) AS session
        FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)}
            AND Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    )
    WHERE session IN (
        SELECT session_id FROM scores
        WHERE session_id != '' AND trace_id = '' AND response_id = '' AND episode_key = ''
    )
) AS judged
SELECT DISTINCT TraceId AS trace_id
FROM otel_traces
WHERE notEmpty(judged)
    AND (SessionId IN (SELECT arrayJoin(judged)) OR GenAiConversationId IN (SELECT arrayJoin(judged)))
ORDER BY TraceId
LIMIT {max_traces:UInt64}
