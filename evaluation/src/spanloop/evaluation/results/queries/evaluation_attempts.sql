-- The attempts that the task runner made with a model (name@version, or another name) at given tasks; an empty list selects all.
SELECT
    run_id, task_id, task_digest, attempt, episode_id AS episode_key, state, is_success, reward, started_at, duration_ms
FROM attempts FINAL
WHERE model = {model:String}
    AND (empty({run_ids:Array(String)}) OR has({run_ids:Array(String)}, run_id))
    AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task_id))
    AND startsWith(task_id, {task_prefix:String})
    AND started_at >= {since:DateTime64(6, 'UTC')}
ORDER BY task_id, run_id, attempt
