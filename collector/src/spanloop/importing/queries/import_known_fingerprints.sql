-- Fingerprints of the stored span ids of the traces in a range of ids (last id included) and a time range.
SELECT
    TraceId AS trace_id,
    groupBitXorDistinct(cityHash64(SpanId)) AS fingerprint
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    AND TraceId > {after:String}
    AND TraceId <= {last:String}
GROUP BY TraceId
