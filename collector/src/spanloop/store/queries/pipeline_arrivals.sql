-- When the newest row that the pipeline reads was ingested, and how many rows were since a moment (microseconds).
-- Only rows from that moment on are looked at, and summaries: a row that nothing has erased is never older.
WITH fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') AS since
SELECT
    max(newest_us) AS until_us,
    sum(arrived) AS arrived
FROM (
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, toUInt64(0) AS arrived
    FROM trace_summaries
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us, count() AS arrived
    FROM otel_traces
    WHERE IngestedAt > since
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us, count() AS arrived
    FROM otel_logs
    WHERE IngestedAt > since AND SpanEventName != ''
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, count() AS arrived
    FROM scores
    WHERE ingested_at > since
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, count() AS arrived
    FROM generations
    WHERE ingested_at > since
)
