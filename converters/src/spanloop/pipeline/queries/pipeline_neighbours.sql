-- Traces near a time range (nanoseconds) with model calls without an episode id, nearest first: traces of some services, and in other services those of another scope.
SELECT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64} - {window_ns:Int64}, 'UTC')
    AND Timestamp <= fromUnixTimestamp64Nano({until_ns:Int64} + {window_ns:Int64}, 'UTC')
    AND IsModelCall
    AND SpanloopEpisodeId = ''
    AND (
        ServiceName IN {services:Array(String)}
        OR (
            ServiceName IN {held_services:Array(String)}
            AND (ServiceName, ScopeName) NOT IN arrayZip({held_services:Array(String)}, {held_scopes:Array(String)})
        )
    )
GROUP BY TraceId
ORDER BY
    min(greatest(
        {from_ns:Int64} - toUnixTimestamp64Nano(Timestamp), toUnixTimestamp64Nano(Timestamp) - {until_ns:Int64}, 0
    )),
    TraceId
LIMIT {max_traces:UInt32}
