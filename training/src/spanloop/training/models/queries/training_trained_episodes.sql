-- The episodes that jobs trained on until a step each, in the newest attempt at it: job_ids and last_steps are parallel.
-- Joins: local by job.
SELECT DISTINCT episode_id
FROM training_samples
WHERE has({job_ids:Array(String)}, job_id)
    AND step <= arrayElement({last_steps:Array(UInt32)}, indexOf({job_ids:Array(String)}, job_id))
    AND (job_id, step, attempt) IN (
        SELECT job_id, step, max(attempt)
        FROM training_samples
        WHERE has({job_ids:Array(String)}, job_id)
        GROUP BY job_id, step
    )
ORDER BY episode_id
