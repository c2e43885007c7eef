-- The jobs that recorded training metrics, newest first.
SELECT job_id, max(s.last_step) AS last_step, uniqExact(name) AS metrics, max(s.last_recorded_at) AS last_recorded_at
FROM metric_summaries AS s
GROUP BY job_id
ORDER BY last_recorded_at DESC
LIMIT {max_rows:UInt32}
