SELECT episode_id, agent_name, input_tokens + output_tokens AS tokens, step_count
FROM episodes FINAL
WHERE is_deleted = 0
    AND task_id = {task:String}
ORDER BY started_at DESC, episode_id DESC
LIMIT 20
