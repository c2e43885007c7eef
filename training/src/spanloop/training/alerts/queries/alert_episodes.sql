-- Figures of the episodes that ended at a time or later; agent '' is every agent, which is its service where it has no name.
-- started_since: a bound of the key, before since; an episode that ran longer is not counted.
SELECT
    count() AS episodes,
    countIf(outcome = 'failure') AS failed,
    countIf(reward IS NOT NULL) AS rewarded,
    avg(reward) AS mean_reward,
    quantilesExact(0.5, 0.95, 0.99)(duration_ns / 1e9) AS latency_s,
    min(started_at) AS first_started_at
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND ({agent:String} = '' OR if(agent_name = '', service_name, agent_name) = {agent:String})
    AND started_at >= {started_since:DateTime64(9, 'UTC')}
    AND started_at + toIntervalNanosecond(duration_ns) >= {since:DateTime64(9, 'UTC')}
