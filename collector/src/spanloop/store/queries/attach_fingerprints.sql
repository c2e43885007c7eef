-- A page of the traces with a model call of one stretch of time of a foreign span table, by id: how many spans each has there, and a fingerprint of their ids.
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
