-- Number of episodes by policy version with a failure in each of these groups.
SELECT f.fingerprint AS fingerprint, e.policy_version AS policy_version, uniqExact(f.episode_id) AS episodes
FROM failure_summaries AS f FINAL
INNER JOIN (
    SELECT episode_id, revision, policy_version
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
        AND startsWith(task_id, {task_prefix:String})
) AS e ON e.episode_id = f.episode_id AND e.revision = f.revision
WHERE f.occurred_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
    AND has({fingerprints:Array(String)}, f.fingerprint)
GROUP BY fingerprint, policy_version
ORDER BY fingerprint, policy_version
