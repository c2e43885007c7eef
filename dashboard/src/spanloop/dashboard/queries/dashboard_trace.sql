-- One trace: its summary and the current episodes that contain it; no row when it is not stored.
SELECT
    min(t.started_at) AS started_at,
    toUnixTimestamp64Nano(max(t.ended_at)) - toUnixTimestamp64Nano(min(t.started_at)) AS duration_ns,
    toString(max(t.root_name)) AS root_name,
    toString(max(t.service_name)) AS service_name,
    toString(max(t.agent_name)) AS agent_name,
    toString(max(t.model)) AS model,
    max(t.task_id) AS task_id,
    max(t.session_id) AS session_id,
    toUInt32(length(groupUniqArrayArray(t.spans))) AS span_count,
    toUInt32(length(groupUniqArrayArray(t.failed_spans))) AS failed_span_count,
    toUInt32(length(maxMap(t.calls))) AS model_calls,
    arraySum(tokens -> bitShiftRight(tokens, 32), mapValues(maxMap(t.calls))) AS input_tokens,
    arraySum(tokens -> bitAnd(tokens, 4294967295), mapValues(maxMap(t.calls))) AS output_tokens,
    (
        SELECT groupArray(episode_id)
        FROM episodes FINAL
        WHERE is_deleted = 0 AND has(trace_ids, {trace_id:String})
    ) AS episode_ids
FROM trace_summaries AS t
WHERE trace_id = {trace_id:String}
HAVING count() > 0
