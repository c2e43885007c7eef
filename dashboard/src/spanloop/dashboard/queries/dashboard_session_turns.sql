-- The traces of a session in a range of time, in order of start.
SELECT
    trace_id,
    min(t.started_at) AS started_at,
    toUInt64(greatest(0, toUnixTimestamp64Nano(max(t.ended_at)) - toUnixTimestamp64Nano(min(t.started_at)))) AS duration_ns,
    toString(max(t.root_name)) AS root_name,
    toString(max(t.service_name)) AS service_name,
    toUInt32(length(groupUniqArrayArray(t.failed_spans))) AS failed_span_count,
    toUInt32(length(maxMap(t.calls))) AS model_calls
FROM trace_summaries AS t
WHERE t.session_id = {session_id:String}
    AND t.ten_minutes >= toDateTime({from_s:Int64}, 'UTC') AND t.ten_minutes < toDateTime({until_s:Int64}, 'UTC')
GROUP BY trace_id
ORDER BY started_at, trace_id
LIMIT {max_rows:UInt32}
