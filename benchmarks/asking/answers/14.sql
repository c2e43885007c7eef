SELECT
    agent_name,
    count() AS number,
    countIf(outcome = 'success') AS successes,
    successes / nullIf(countIf(outcome != 'unknown'), 0) AS success_share,
    avg(reward) AS mean_reward
FROM episodes FINAL
WHERE is_deleted = 0
    AND agent_name != ''
    AND started_at >= toDateTime64({start_s:Int64}, 9, 'UTC')
    AND started_at < toDateTime64({end_s:Int64}, 9, 'UTC')
GROUP BY agent_name
ORDER BY number DESC, agent_name
LIMIT 20
