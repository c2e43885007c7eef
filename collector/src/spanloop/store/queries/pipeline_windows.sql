-- Stretches of ingestion time (microseconds) with about so many spans each, oldest first, and how many of the spans are new.
SELECT
    max(newest_us) AS until_us,
    sum(fresh) AS new_spans
FROM (
    SELECT
        newest_us,
        fresh,
        intDiv(sum(spans) OVER (ORDER BY newest_us ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - spans, {max_spans:UInt64}) AS number
    FROM (
        SELECT
            toUnixTimestamp64Micro(max(IngestedAt)) AS newest_us,
            count() AS spans,
            countIf(IngestedAt > fromUnixTimestamp64Micro({counted_since_us:Int64}, 'UTC')) AS fresh
        FROM otel_traces
        WHERE IngestedAt > fromUnixTimestamp64Micro({since_us:Int64}, 'UTC')
            AND IngestedAt <= fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')
        GROUP BY toStartOfSecond(IngestedAt)
    )
)
GROUP BY number
ORDER BY until_us
