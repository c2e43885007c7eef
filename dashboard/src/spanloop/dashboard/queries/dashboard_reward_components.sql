-- Mean and standard deviation of each component of the rewards, by policy version.
SELECT
    policy_version,
    scored.1 AS component,
    count() AS episodes,
    avg(scored.2) AS mean,
    stddevSamp(scored.2) AS stddev
FROM (
    SELECT policy_version, arrayJoin(CAST(reward_breakdown, 'Array(Tuple(String, Float64))')) AS scored
    FROM episode_summaries FINAL
    WHERE is_deleted = 0 AND startsWith(task_id, {task_prefix:String})
        AND policy_version IN {policy_versions:Array(String)}
)
GROUP BY policy_version, component
ORDER BY component, policy_version
