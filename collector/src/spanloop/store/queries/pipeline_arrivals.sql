-- When the newest row that the pipeline reads was ingested, and how many rows were since a moment (microseconds).
SELECT
    max(newest_us) AS until_us,
    sum(arrived) AS arrived
FROM (
    SELECT toUnixTimestamp64Micro(max(ingested_at)) AS newest_us, toUInt64(0) AS arrived
    FROM trace_summaries
    UNION ALL
    SELECT toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us, count() AS arrived
    FROM otel_traces
    WHERE IngestedAt > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
    UNION ALL
    SELECT
        toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us,
        countIf(IngestedAt > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')) AS arrived
    FROM otel_logs
    WHERE SpanEventName != ''
    UNION ALL
    SELECT
        toUnixTimestamp64Micro(max(ingested_at)) AS newest_us,
        countIf(ingested_at > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')) AS arrived
    FROM scores
    UNION ALL
    SELECT
        toUnixTimestamp64Micro(max(ingested_at)) AS newest_us,
        countIf(ingested_at > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')) AS arrived
    FROM generations
)
