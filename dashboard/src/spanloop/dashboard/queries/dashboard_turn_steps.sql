-- The first and the last step of each agent in a trace, of one episode revision, and what lies between.
SELECT
    agent_name,
    toUInt32(min(step)) AS first_step,
    toUInt32(max(step)) AS last_step,
    toUInt32(count()) AS steps,
    toUInt32(sum(tool_error_count)) AS tool_errors
FROM transition_rows
WHERE episode_id = {episode_id:String} AND revision = {revision:UInt64} AND trace_id = {trace_id:String}
GROUP BY agent_name
ORDER BY first_step
