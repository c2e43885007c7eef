SELECT episode_id, revision, reward, task_id
FROM episodes FINAL
WHERE is_deleted = 0
    AND service_name = 'service-2'
    AND outcome = 'failure'
ORDER BY started_at DESC, episode_id DESC
LIMIT 20
