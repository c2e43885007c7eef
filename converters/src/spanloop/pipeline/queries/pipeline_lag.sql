-- Spans ingested after a time (microseconds), and the age of the oldest of them by the server's clock.
-- The traces' summaries give the time range of the spans to read.
WITH
    fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') AS since,
    (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE ingested_at > since) AS spans_at
SELECT
    count() AS spans,
    if(spans = 0, 0., (toUnixTimestamp64Micro(now64(6, 'UTC')) - toUnixTimestamp64Micro(min(IngestedAt))) / 1e6) AS oldest_age_s
FROM otel_traces
WHERE IngestedAt > since AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
