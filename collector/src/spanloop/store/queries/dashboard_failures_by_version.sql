-- Failures and their fault owners for each policy version, optionally of one fingerprint, with the version's episodes.
WITH
    current AS (
        SELECT episode_id, revision, policy_version, started_at
        FROM episodes FINAL
        WHERE is_deleted = 0 AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
    ),
    versions AS (
        SELECT policy_version, count() AS episodes, min(started_at) AS first_seen FROM current GROUP BY policy_version
    )
SELECT
    f.policy_version AS policy_version,
    f.fault_owner AS fault_owner,
    count() AS failures,
    countIf(f.is_recovered) AS recovered,
    any(v.episodes) AS episodes,
    any(v.first_seen) AS first_seen
FROM failures AS f FINAL
LEFT JOIN versions AS v ON v.policy_version = f.policy_version
WHERE (f.episode_id, f.revision) IN (SELECT episode_id, revision FROM current)
    AND ({fingerprint:String} = '' OR f.fingerprint = {fingerprint:String})
GROUP BY policy_version, fault_owner
ORDER BY first_seen, policy_version, fault_owner
