SELECT episode_id, step
FROM transition_rows FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND task_id = {task:String}
ORDER BY started_at DESC, concat(episode_id, '/', toString(step)) DESC
LIMIT 20
