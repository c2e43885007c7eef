-- When the newest span came in, and how many came in during the last hour; no row without spans.
SELECT
    (SELECT max(ingested_at) FROM trace_summaries) AS newest_at,
    (SELECT count() FROM otel_traces WHERE IngestedAt > now64(6, 'UTC') - INTERVAL 1 HOUR) AS last_hour
WHERE newest_at > toDateTime64(0, 6, 'UTC')
