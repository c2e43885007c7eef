-- A page of the traces with a model call in a time range of a remote span table, by id, with the number of their spans and a fingerprint of the span ids.
SELECT
    TraceId AS trace_id,
    count() AS spans,
    groupBitXorDistinct(cityHash64(SpanId)) AS fingerprint
FROM {table:Identifier}
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    AND TraceId > {after:String}
    AND TraceId IN (
        SELECT TraceId FROM {table:Identifier}
        WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64} - {reach_ns:Int64}, 'UTC')
            AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64} + {reach_ns:Int64}, 'UTC')
            AND hasAny(mapKeys(SpanAttributes), {model_call_keys:Array(String)})
    )
GROUP BY TraceId
ORDER BY TraceId
LIMIT {max_traces:UInt64}
