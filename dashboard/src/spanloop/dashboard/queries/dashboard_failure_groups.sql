-- Failures grouped by fingerprint, most frequent first; the message is that of the newest failure in the group.
-- An episode with a failure since a time is assumed to have started at most a week earlier.
SELECT
    toString(f.fingerprint) AS fingerprint,
    count() AS failures,
    uniqExact(f.episode_id) AS episodes,
    countIf(f.is_recovered) AS recovered,
    argMax(f.fault_owner, f.occurred_at) AS fault_owner,
    argMax(f.error_class, f.occurred_at) AS error_class,
    argMax(f.tool_name, f.occurred_at) AS tool_name,
    argMax(f.headline, f.occurred_at) AS message,
    min(f.occurred_at) AS first_seen,
    max(f.occurred_at) AS last_seen
FROM (
    SELECT episode_id, revision
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND started_at >= toDateTime64(greatest({since_s:Int64} - 604800, 0), 9, 'UTC')
) AS e
INNER JOIN (
    SELECT *
    FROM failure_summaries FINAL
    WHERE occurred_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
        AND ({fault_owner:String} = '' OR fault_owner = {fault_owner:String})
        AND startsWith(task_id, {task_prefix:String})
) AS f ON e.episode_id = f.episode_id AND e.revision = f.revision
GROUP BY fingerprint
ORDER BY failures DESC, last_seen DESC, fingerprint
LIMIT {max_rows:UInt32}
