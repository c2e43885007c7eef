-- Names of the tools that a service's newest episodes were offered.
-- Joins: global.
SELECT arraySort(groupUniqArrayArray(arrayMap(tool -> JSONExtractString(tool, 'name'), JSONExtractArrayRaw(tools)))) AS tools
FROM transitions
WHERE (episode_id, revision) IN (
    SELECT episode_id, revision FROM episodes FINAL
    WHERE is_deleted = 0 AND service_name = {service:String}
    ORDER BY started_at DESC LIMIT 20
)
