-- Traces of the same sessions as the given traces, whose spans lie in a time range (nanoseconds), for sessions with a score for the whole session.
-- Such a score can be assigned only when all traces of the session are known. Limited to max_traces, beyond which they are several episodes.
-- Joins: global.
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
) AS scored_sessions
SELECT DISTINCT TraceId AS trace_id
FROM otel_traces
WHERE notEmpty(scored_sessions)
    AND (SessionId IN (SELECT arrayJoin(scored_sessions)) OR GenAiConversationId IN (SELECT arrayJoin(scored_sessions)))
ORDER BY TraceId
LIMIT {max_traces:UInt64}
