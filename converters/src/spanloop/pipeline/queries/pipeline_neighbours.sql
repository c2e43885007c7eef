-- Traces near a time range (nanoseconds) with model calls without an episode id, nearest first: traces of some services, and of the held services in which another scope records calls too.
-- Such a call may repeat a held one. Then it leaves its episode, and what remains may continue any call of the service.
WITH
    fromUnixTimestamp64Nano({from_ns:Int64} - {window_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64} + {window_ns:Int64}, 'UTC') AS window_end,
    (
        SELECT groupUniqArray(ServiceName)
        FROM otel_traces
        WHERE Timestamp >= window_start
            AND Timestamp <= window_end
            AND IsModelCall
            AND SpanloopEpisodeId = ''
            AND ServiceName IN {held_services:Array(String)}
            AND (ServiceName, ScopeName) NOT IN arrayZip({held_services:Array(String)}, {held_scopes:Array(String)})
    ) AS services_with_other_scopes
SELECT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= window_start
    AND Timestamp <= window_end
    AND IsModelCall
    AND SpanloopEpisodeId = ''
    AND (ServiceName IN {services:Array(String)} OR has(services_with_other_scopes, ServiceName))
GROUP BY TraceId
ORDER BY
    min(greatest(
        {from_ns:Int64} - toUnixTimestamp64Nano(Timestamp), toUnixTimestamp64Nano(Timestamp) - {until_ns:Int64}, 0
    )),
    TraceId
LIMIT {max_traces:UInt32}
