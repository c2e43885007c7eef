-- Traces that span links name in the given traces, whose spans lie between two times (nanoseconds), and traces in a time window that link to the given ones. A trace that links to more than max_linked others is a consumer, which joins none.
WITH
    fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AS window_start,
    fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC') AS window_end,
    linked AS (
        SELECT groupUniqArrayArray({max_linked:UInt32} + 1)(`Links.TraceId`) AS trace_ids
        FROM otel_traces
        WHERE TraceId IN {trace_ids:Array(String)}
            AND Timestamp >= fromUnixTimestamp64Nano({given_from_ns:Int64}, 'UTC')
            AND Timestamp <= fromUnixTimestamp64Nano({given_until_ns:Int64}, 'UTC')
            AND notEmpty(`Links.TraceId`)
        GROUP BY TraceId
        HAVING length(trace_ids) <= {max_linked:UInt32}
    )
SELECT arrayJoin(trace_ids) AS trace_id
FROM linked
UNION DISTINCT
SELECT TraceId AS trace_id
FROM otel_traces
WHERE Timestamp >= window_start
    AND Timestamp <= window_end
    AND notEmpty(`Links.TraceId`)
    AND length(`Links.TraceId`) <= {max_linked:UInt32}
    AND hasAny(`Links.TraceId`, {trace_ids:Array(String)})
LIMIT {max_traces:UInt32}
