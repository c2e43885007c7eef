-- Traces with a span or log record that has the trace, session or user id; an empty id matches none.
SELECT DISTINCT trace_id
FROM (
    SELECT TraceId AS trace_id
    FROM otel_traces
    WHERE TraceId = {trace_id:String}
        OR ({session_id:String} != '' AND {session_id:String} IN (SessionId, GenAiConversationId))
        OR ({user_id:String} != '' AND {user_id:String} IN (
            SpanAttributes['user.id'], SpanAttributes['enduser.id'], ResourceAttributes['user.id']
        ))
    UNION ALL
    SELECT TraceId AS trace_id
    FROM otel_logs
    WHERE TraceId = {trace_id:String}
        OR ({session_id:String} != '' AND {session_id:String} IN (LogAttributes['session.id'], LogAttributes['gen_ai.conversation.id']))
        OR ({user_id:String} != '' AND {user_id:String} IN (
            LogAttributes['user.id'], LogAttributes['enduser.id'], ResourceAttributes['user.id']
        ))
)
WHERE trace_id != ''
