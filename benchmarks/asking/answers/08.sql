SELECT failure_id, episode_id, tool_name, fault_owner
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND error_class = 'class_4'
ORDER BY occurred_at DESC, failure_id DESC
LIMIT 20
