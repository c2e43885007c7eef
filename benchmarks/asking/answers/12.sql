SELECT
    tool_name,
    count() AS number,
    countIf(fault_owner = 'policy') AS by_policy,
    countIf(fault_owner = 'tool') AS by_tool
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND tool_name != ''
GROUP BY tool_name
ORDER BY number DESC, tool_name = 'tool_1' DESC, tool_name
LIMIT 20
