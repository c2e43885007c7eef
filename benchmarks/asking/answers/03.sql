SELECT task_id, episode_id, outcome
FROM episodes FINAL
WHERE is_deleted = 0
    AND policy_version = 'm@v1'
ORDER BY task_id, episode_id
LIMIT 20
