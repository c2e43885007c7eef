-- The jobs that recorded training metrics, newest first.
SELECT job_id, max(step) AS last_step, uniqExact(name) AS metrics, min(recorded_at) AS first_recorded_at, max(recorded_at) AS last_recorded_at
FROM training_metrics FINAL
GROUP BY job_id
ORDER BY last_recorded_at DESC
LIMIT {max_rows:UInt32}
