-- Hours (seconds since the epoch) of a remote span table from a time on, with the number of spans in traces with a model call.
SELECT
    toUnixTimestamp(toStartOfHour(Timestamp)) AS hour_s,
    count() AS spans
FROM {table:Identifier}
WHERE Timestamp >= fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')
    AND TraceId IN (
        SELECT TraceId FROM {table:Identifier}
        WHERE Timestamp >= fromUnixTimestamp64Nano({since_ns:Int64} - {reach_ns:Int64}, 'UTC')
            AND hasAny(mapKeys(SpanAttributes), {model_call_keys:Array(String)})
    )
GROUP BY hour_s
ORDER BY hour_s
