-- Ingestion time of the newest row that the pipeline reads, and the number of rows ingested since a time (microseconds).
-- Summaries give the time ranges of the spans and log records to read. Rows that are not erased never become older.
WITH
    fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') AS since,
    (SELECT (min(started_at), max(ended_at), max(ingested_at)) FROM trace_summaries WHERE ingested_at > since) AS spans_at,
    (SELECT (min(first_at), max(last_at)) FROM log_summaries WHERE ingested_at > since) AS logs_at
SELECT
    max(newest_us) AS until_us,
    sum(arrived) AS arrived
FROM (
    SELECT toUnixTimestamp64Micro(spans_at.3) AS newest_us, toUInt64(0) AS arrived
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, toUInt64(0) AS arrived
    FROM trace_summaries
    WHERE spans_at.3 <= since
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us, count() AS arrived
    FROM otel_traces
    WHERE IngestedAt > since AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us, count() AS arrived
    FROM otel_logs
    WHERE IngestedAt > since AND SpanEventName != '' AND Timestamp >= logs_at.1 AND Timestamp <= logs_at.2
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, count() AS arrived
    FROM scores
    WHERE ingested_at > since
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, count() AS arrived
    FROM judgements
    WHERE ingested_at > since
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, count() AS arrived
    FROM generations
    WHERE ingested_at > since
)
