-- The fingerprint of the span ids that the store has, for the traces with ids in a range (its end included) within a stretch of time.
SELECT
    TraceId AS trace_id,
    groupBitXorDistinct(cityHash64(SpanId)) AS fingerprint
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    AND TraceId > {after:String}
    AND TraceId <= {last:String}
GROUP BY TraceId
