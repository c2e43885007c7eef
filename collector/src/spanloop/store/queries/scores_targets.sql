-- Whether the targets of a score are stored, one column each; an empty id is. An episode without an id of the app has a trace's.
SELECT
    empty({trace_id:String}) OR (
        SELECT count() FROM (SELECT 1 FROM otel_traces WHERE {trace_id:String} != '' AND TraceId = {trace_id:String} LIMIT 1)
    ) AS trace_id,
    empty({span_id:String}) OR (
        SELECT count()
        FROM (
            SELECT 1 FROM otel_traces
            WHERE {span_id:String} != '' AND TraceId = {trace_id:String} AND SpanId = {span_id:String}
            LIMIT 1
        )
    ) AS span_id,
    empty({response_id:String}) OR (
        SELECT count()
        FROM (
            SELECT 1 FROM otel_traces
            WHERE {response_id:String} != '' AND GenAiResponseId = {response_id:String}
            LIMIT 1
            UNION ALL
            SELECT 1 FROM generations WHERE {response_id:String} != '' AND response_id = {response_id:String} LIMIT 1
            UNION ALL
            SELECT 1 FROM transition_rows WHERE {response_id:String} != '' AND response_id = {response_id:String} LIMIT 1
        )
    ) AS response_id,
    empty({session_id:String}) OR (
        SELECT count()
        FROM (
            SELECT 1 FROM otel_traces
            WHERE {session_id:String} != '' AND (SessionId = {session_id:String} OR GenAiConversationId = {session_id:String})
            LIMIT 1
            UNION ALL
            SELECT 1 FROM episodes WHERE {session_id:String} != '' AND session_id = {session_id:String} LIMIT 1
        )
    ) AS session_id,
    empty({episode_id:String}) OR (
        SELECT count()
        FROM (
            SELECT 1 FROM otel_traces
            WHERE {episode_id:String} != ''
                AND (TraceId = lower({episode_id:String}) OR SpanloopEpisodeId = {episode_id:String})
            LIMIT 1
        )
    ) AS episode_id
