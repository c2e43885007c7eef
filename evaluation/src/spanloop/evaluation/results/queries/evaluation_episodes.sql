-- The episodes of one stored evaluation by task, including those that are left out.
SELECT
    episode_id, revision, task_id, run_id, attempt, state, left_out, is_training_task, is_success, reward, latency_s, tokens,
    steps, tool_selection, plan_success, step_efficiency, error_class, error_classes, tool_calls, failed_tool_calls
FROM evaluation_episodes FINAL
WHERE evaluation_id = {evaluation_id:String} AND evaluation_revision = {evaluation_revision:UInt64}
ORDER BY task_id, episode_id
