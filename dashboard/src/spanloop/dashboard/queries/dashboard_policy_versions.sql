-- Outcomes and rewards of the episodes of each policy version, in the order in which the versions first appeared.
SELECT
    policy_version,
    count() AS episodes,
    countIf(outcome = 'success') AS successes,
    countIf(outcome = 'failure') AS failures,
    count(reward) AS rewarded,
    avg(reward) AS mean_reward,
    stddevSamp(reward) AS reward_stddev,
    min(started_at) AS first_seen,
    max(started_at) AS last_seen
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
    AND startsWith(task_id, {task_prefix:String})
GROUP BY policy_version
ORDER BY first_seen
