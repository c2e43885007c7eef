-- The attempts of one run, by task and number.
SELECT
    task_id, attempt, model, episode_id, state, exit_code, is_success, reward, grader, grader_version, evidence, seed,
    started_at, duration_ms, error
FROM attempts FINAL
WHERE run_id = {run_id:String}
ORDER BY task_id, attempt
