-- Ranges of ingestion time (microseconds) with about max_spans spans each, oldest first, and the number of new spans in them.
-- The traces' summaries give the time range of the spans to read.
WITH (
    SELECT (min(started_at), max(ended_at))
    FROM trace_summaries
    WHERE ingested_at > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
) AS spans_at
SELECT
    max(newest_us) AS until_us,
    sum(new_in_second) AS new_spans
FROM (
    SELECT
        newest_us,
        new_in_second,
        intDiv(sum(spans) OVER (ORDER BY newest_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - spans, {max_spans:UInt64}) AS number
    FROM (
        SELECT
            toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us,
            count() AS spans,
            countIf(IngestedAt > fromUnixTimestamp64Micro({counted_since_us:Int64}, 'UTC')) AS new_in_second
        FROM otel_traces
        WHERE IngestedAt > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
            AND IngestedAt <= fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')
            AND Timestamp >= spans_at.1
            AND Timestamp <= spans_at.2
        GROUP BY toStartOfSecond(IngestedAt)
    )
)
GROUP BY number
ORDER BY until_us
