-- The names of the metrics that the given jobs recorded.
SELECT DISTINCT toString(name) AS name
FROM training_metrics
WHERE job_id IN {job_ids:Array(String)}
ORDER BY name
