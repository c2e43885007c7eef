-- Messages that the policy read and wrote in a range of steps of one episode revision, as canonical message JSON.
SELECT step, trace_id, agent_name, is_trainable, untrainable_reason, reward, error_class, fault_owner, state, action, tool_results
FROM transitions
WHERE episode_id = {episode_id:String} AND revision = {revision:UInt64}
    AND step >= {first_step:UInt32} AND step <= {last_step:UInt32}
ORDER BY step
