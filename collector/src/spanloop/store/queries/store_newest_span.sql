-- Ingestion time of the newest span, and number of spans ingested in the last hour; no row without spans.
-- The traces' summaries give the time range of the spans to read.
WITH
    now64(6, 'UTC') - INTERVAL 1 HOUR AS since,
    (SELECT (min(started_at), max(ended_at), max(ingested_at)) FROM trace_summaries WHERE ingested_at > since) AS arrived
SELECT
    if(arrived.3 > since, arrived.3, (SELECT max(ingested_at) FROM trace_summaries WHERE arrived.3 <= since)) AS newest_at,
    (
        SELECT count() FROM otel_traces
        WHERE IngestedAt > since AND Timestamp >= arrived.1 AND Timestamp <= arrived.2
    ) AS last_hour
WHERE newest_at > toDateTime64(0, 6, 'UTC')
