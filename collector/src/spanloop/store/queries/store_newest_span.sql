-- When the newest span came in, and how many came in during the last hour; no row without spans.
SELECT
    max(IngestedAt) AS newest_at,
    countIf(IngestedAt > now64(6, 'UTC') - INTERVAL 1 HOUR) AS last_hour
FROM otel_traces
HAVING count() > 0
