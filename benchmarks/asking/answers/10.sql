-- Where a group has several owners or classes, those of its newest failure.
SELECT
    fingerprint,
    count() AS number,
    uniqExact(episode_id) AS episodes,
    countIf(is_recovered) AS recovered,
    argMax(fault_owner, (occurred_at, failure_id)) AS owner,
    argMax(error_class, (occurred_at, failure_id)) AS class
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
GROUP BY fingerprint
ORDER BY number DESC, max(occurred_at) DESC, fingerprint
LIMIT 20
