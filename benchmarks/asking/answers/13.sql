SELECT
    policy_version,
    count() AS number,
    countIf(outcome = 'success') AS successes,
    successes / nullIf(countIf(outcome != 'unknown'), 0) AS success_share,
    avg(reward) AS mean_reward
FROM episodes FINAL
WHERE is_deleted = 0
    AND policy_version != ''
GROUP BY policy_version
ORDER BY number DESC, policy_version
LIMIT 20
