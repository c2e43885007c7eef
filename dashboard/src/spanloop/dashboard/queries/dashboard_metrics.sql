-- The given metrics of the given jobs by step; all metrics when no name is given.
SELECT job_id, step, toString(name) AS name, value
FROM training_metrics FINAL
WHERE job_id IN {job_ids:Array(String)} AND (empty({names:Array(String)}) OR name IN {names:Array(String)})
ORDER BY job_id, name, step
