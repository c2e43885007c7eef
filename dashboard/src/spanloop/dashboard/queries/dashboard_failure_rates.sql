-- Failures by policy version, class and owner, and the episodes that did not recover; optionally of one fingerprint.
SELECT
    e.policy_version AS policy_version,
    toString(f.error_class) AS error_class,
    toString(f.fault_owner) AS fault_owner,
    count() AS failures,
    countIf(f.is_recovered) AS recovered,
    uniqExactIf(f.episode_id, NOT f.is_recovered) AS failed_episodes
FROM failure_summaries AS f FINAL
INNER JOIN (
    SELECT episode_id, revision, policy_version
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
        AND startsWith(task_id, {task_prefix:String})
) AS e ON e.episode_id = f.episode_id AND e.revision = f.revision
WHERE f.occurred_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
    AND ({fingerprint:String} = '' OR f.fingerprint = {fingerprint:String})
    AND ({fault_owner:String} = '' OR f.fault_owner = {fault_owner:String})
GROUP BY policy_version, error_class, fault_owner
ORDER BY failures DESC, error_class, fault_owner, policy_version
