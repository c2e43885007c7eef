-- The newest traces that match the filters (an empty filter matches all), from their summaries; no span is read.
-- Candidates are the traces of the newest ten-minute intervals that contain enough of them; all rows of a trace are assumed to lie within a day.
WITH
    toDateTime({since_s:Int64}, 'UTC') AS since,
    (
        SELECT min(ten_minutes)
        FROM (
            SELECT ten_minutes
            FROM trace_summaries
            WHERE ten_minutes >= toStartOfTenMinutes(since)
                AND ({service_name:String} = '' OR service_name = {service_name:String})
                AND ({only_failed:UInt8} = 0 OR notEmpty(failed_spans))
                AND ({text:String} = '' OR positionCaseInsensitive(concat(trace_id, ' ', task_id, ' ', session_id, ' ', agent_name, ' ', root_name), {text:String}) > 0)
            ORDER BY ten_minutes DESC
            LIMIT 1 BY trace_id
            LIMIT {max_rows:UInt32} + {skip_rows:UInt32}
        )
    ) AS oldest,
    selected AS (
        SELECT trace_id
        FROM trace_summaries
        WHERE ten_minutes >= oldest
            AND started_at >= since
            AND ({service_name:String} = '' OR service_name = {service_name:String})
            AND ({only_failed:UInt8} = 0 OR notEmpty(failed_spans))
            AND ({text:String} = '' OR positionCaseInsensitive(concat(trace_id, ' ', task_id, ' ', session_id, ' ', agent_name, ' ', root_name), {text:String}) > 0)
        GROUP BY trace_id
        ORDER BY min(started_at) DESC, trace_id
        LIMIT {max_rows:UInt32} OFFSET {skip_rows:UInt32}
    )
SELECT
    trace_id,
    min(t.started_at) AS started_at,
    toUnixTimestamp64Nano(max(t.ended_at)) - toUnixTimestamp64Nano(min(t.started_at)) AS duration_ns,
    toString(max(t.root_name)) AS root_name,
    toString(max(t.service_name)) AS service_name,
    toString(max(t.agent_name)) AS agent_name,
    toString(max(t.model)) AS model,
    max(t.task_id) AS task_id,
    max(t.session_id) AS session_id,
    toUInt32(length(groupUniqArrayArray(t.spans))) AS span_count,
    toUInt32(length(groupUniqArrayArray(t.failed_spans))) AS failed_span_count,
    toUInt32(length(maxMap(t.calls))) AS model_calls,
    arraySum(tokens -> bitShiftRight(tokens, 32), mapValues(maxMap(t.calls))) AS input_tokens,
    arraySum(tokens -> bitAnd(tokens, 4294967295), mapValues(maxMap(t.calls))) AS output_tokens
FROM trace_summaries AS t
WHERE ten_minutes >= toDateTime(greatest(toInt64(toUnixTimestamp(oldest)) - 86400, 0), 'UTC')
    AND trace_id IN (SELECT trace_id FROM selected)
GROUP BY trace_id
ORDER BY started_at DESC, trace_id
