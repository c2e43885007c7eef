-- The jobs that recorded training metrics, newest first.
SELECT job_id, max(step) AS last_step, uniqExact(name) AS metrics, max(recorded_at) AS last_recorded_at
FROM training_metrics
GROUP BY job_id
ORDER BY last_recorded_at DESC
LIMIT {max_rows:UInt32}
