-- Erase the log records of the given traces, and records without a trace that have the session's or the user's id.
ALTER TABLE otel_logs DELETE
WHERE TraceId IN {trace_ids:Array(String)}
    OR ({session_id:String} != '' AND (
        LogAttributes['session.id'] = {session_id:String} OR LogAttributes['gen_ai.conversation.id'] = {session_id:String}
    ))
    OR ({user_id:String} != '' AND (
        LogAttributes['user.id'] = {user_id:String} OR LogAttributes['enduser.id'] = {user_id:String}
        OR ResourceAttributes['user.id'] = {user_id:String}
    ))
SETTINGS mutations_sync = 2
