-- The traces with spans of one attempt, and the bounds of these spans' start times in nanoseconds.
SELECT
    groupUniqArray(TraceId) AS trace_ids,
    toInt64(min(toUnixTimestamp64Nano(Timestamp))) AS from_ns,
    toInt64(max(toUnixTimestamp64Nano(Timestamp))) AS until_ns
FROM otel_traces
WHERE SpanloopEpisodeId = {episode_id:String}
