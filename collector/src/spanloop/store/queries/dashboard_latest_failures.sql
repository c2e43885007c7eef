-- The newest failures of current episode revisions, optionally of one fingerprint.
SELECT
    failure_id, episode_id, task_id, step, span_id, agent_name, tool_name, policy_version, error_class, fault_owner,
    is_recovered, message, confidence, rule, fingerprint, occurred_at
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND occurred_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
    AND ({fingerprint:String} = '' OR fingerprint = {fingerprint:String})
ORDER BY occurred_at DESC, failure_id
LIMIT {max_rows:UInt32}
