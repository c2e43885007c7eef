-- Services with stored episodes: their agents, their models, whether a score is stored; the newest first.
SELECT
    service_name,
    arraySort(groupUniqArrayIf(agent_name, agent_name != '')) AS agents,
    topKIf(3)(model, model != '') AS models,
    count() AS episodes,
    countIf(reward IS NOT NULL) AS rewarded,
    uniqExact(group_id) AS tasks,
    max(started_at) AS newest
FROM episodes FINAL
WHERE is_deleted = 0
GROUP BY service_name
ORDER BY newest DESC
