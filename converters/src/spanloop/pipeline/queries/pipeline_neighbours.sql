-- Traces near a time range (nanoseconds) with model calls that those of some services may continue or repeat, nearest first.
-- These are calls without an episode id, and calls with one where another scope of the service records calls without.
-- Held services count only where another scope than theirs records calls without an episode id: such a call may repeat a held one. Then it leaves its episode, and what remains may continue any call of the service.
WITH
    fromUnixTimestamp64Nano({from_ns:Int64} - {window_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64} + {window_ns:Int64}, 'UTC') AS window_end,
    (
        SELECT groupUniqArray((toString(ServiceName), ScopeName))
        FROM otel_traces
        WHERE Timestamp >= window_start
            AND Timestamp <= window_end
            AND IsModelCall
            AND SpanloopEpisodeId = ''
            AND (
                ServiceName IN {services:Array(String)}
                OR (
                    ServiceName IN {held_services:Array(String)}
                    AND (ServiceName, ScopeName) NOT IN arrayZip({held_services:Array(String)}, {held_scopes:Array(String)})
                )
            )
    ) AS callers
SELECT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= window_start
    AND Timestamp <= window_end
    AND IsModelCall
    AND has(callers.1, ServiceName)
    AND (SpanloopEpisodeId = '' OR arrayExists(caller -> caller.1 = ServiceName AND caller.2 != ScopeName, callers))
GROUP BY TraceId
ORDER BY
    min(greatest(
        {from_ns:Int64} - toUnixTimestamp64Nano(Timestamp), toUnixTimestamp64Nano(Timestamp) - {until_ns:Int64}, 0
    )),
    TraceId
LIMIT {max_traces:UInt32}
