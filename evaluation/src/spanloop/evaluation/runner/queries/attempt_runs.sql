-- The runs of the task runner, newest first: their model, grader and counts.
SELECT
    run_id,
    any(model) AS model,
    any(grader) AS grader,
    uniqExact(task_id) AS tasks,
    count() AS attempts,
    countIf(state = 'finished') AS finished,
    countIf(state = 'crashed') AS crashed,
    countIf(state = 'timed_out') AS timed_out,
    countIf(isNotNull(reward)) AS graded,
    countIf(is_success) AS successes,
    sum(reward) AS rewards,
    min(started_at) AS started_at
FROM attempts FINAL
WHERE {run_id:String} = '' OR run_id = {run_id:String}
GROUP BY run_id
ORDER BY started_at DESC
