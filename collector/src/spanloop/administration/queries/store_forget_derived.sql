-- All episodes that were ever converted from the given traces, all traces of these episodes, and the response ids and episode ids of the app in the given traces.
SELECT
    (
        SELECT groupUniqArray(episode_id) FROM (
            SELECT episode_id FROM episodes WHERE hasAny(trace_ids, {trace_ids:Array(String)})
            UNION ALL
            SELECT episode_id FROM transition_rows WHERE trace_id IN {trace_ids:Array(String)}
            UNION ALL
            SELECT episode_id FROM failures WHERE trace_id IN {trace_ids:Array(String)}
            UNION ALL
            SELECT episode_id FROM data_set_episodes WHERE hasAny(trace_ids, {trace_ids:Array(String)})
        )
    ) AS episode_ids,
    (
        SELECT groupUniqArray(trace_id) FROM (
            SELECT arrayJoin(trace_ids) AS trace_id FROM episodes WHERE hasAny(trace_ids, {trace_ids:Array(String)})
        )
    ) AS trace_ids,
    (
        SELECT groupUniqArray(GenAiResponseId) FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)} AND GenAiResponseId != ''
    ) AS response_ids,
    (
        SELECT groupUniqArray(SpanloopEpisodeId) FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)} AND SpanloopEpisodeId != ''
    ) AS episode_keys
