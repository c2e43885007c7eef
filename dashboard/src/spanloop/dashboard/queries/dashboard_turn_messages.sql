-- Messages that the policy read and wrote in single steps of some episode revisions, as canonical message JSON.
SELECT trace_id, step, agent_name, state, action, tool_results
FROM transitions
WHERE episode_id IN {episode_ids:Array(String)} AND revision IN {revisions:Array(UInt64)}
    AND step IN {steps:Array(UInt32)}
    AND has(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)}, {steps:Array(UInt32)}), (episode_id, revision, step))
ORDER BY trace_id, step
