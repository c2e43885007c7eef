-- Services with stored episodes: their agents, their models, whether the app sent a reward; the newest first. The reward of
-- an attempt that a grader judged is not the app's.
-- Joins: global.
SELECT
    service_name,
    arraySort(groupUniqArrayIf(agent_name, agent_name != '')) AS agents,
    topKIf(3)(model, model != '') AS models,
    count() AS episodes,
    countIf(
        reward IS NOT NULL
        AND (episode_key = '' OR episode_key NOT IN (SELECT episode_id FROM attempts FINAL WHERE grader != ''))
    ) AS rewarded,
    uniqExact(group_id) AS tasks,
    max(started_at) AS newest
FROM episodes FINAL
WHERE is_deleted = 0
GROUP BY service_name
ORDER BY newest DESC
