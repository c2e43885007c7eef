-- The steps of the given episode revisions (two parallel lists) as messages, with what the converter refused them for.
SELECT
    episode_id, revision, group_id, step, state, action, tools, reward, '' AS outcome,
    trace_id, span_id, is_trainable, toString(untrainable_reason) AS untrainable_reason, toString(policy_version) AS policy_version
FROM transitions
WHERE episode_id IN ({episode_ids:Array(String)})
    AND (episode_id, revision) IN (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})))
ORDER BY episode_id, step
