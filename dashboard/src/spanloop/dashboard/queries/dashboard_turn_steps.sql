-- The first and the last step of each agent in each of some traces, of one episode revision each, and what lies between.
SELECT
    trace_id,
    agent_name,
    toUInt32(min(step)) AS first_step,
    toUInt32(max(step)) AS last_step,
    toUInt32(count()) AS steps,
    toUInt32(sum(tool_error_count)) AS tool_errors
FROM transition_rows
WHERE episode_id IN {episode_ids:Array(String)} AND revision IN {revisions:Array(UInt64)}
    AND has(arrayZip({trace_ids:Array(String)}, {episode_ids:Array(String)}, {revisions:Array(UInt64)}), (trace_id, episode_id, revision))
GROUP BY trace_id, agent_name
ORDER BY trace_id, first_step
