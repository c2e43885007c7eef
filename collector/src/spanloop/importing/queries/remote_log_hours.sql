-- Hours (seconds since the epoch) of a remote log table from a time on, with the number of records about a model call, its exception or an evaluation.
SELECT
    toUnixTimestamp(toStartOfHour(Timestamp)) AS hour_s,
    count() AS records
FROM (
    -- Older tables have no column EventName.
    SELECT Timestamp, SpanId, Body, LogAttributes['event.name'] AS attribute, concat('', COLUMNS('^EventName$'), '') AS event_name_column
    FROM {logs_table:Identifier}
    WHERE Timestamp >= fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')
)
WHERE startsWith(if(event_name_column != '', event_name_column, attribute) AS event_name, 'gen_ai.') OR (event_name IN ('exception', 'api_request_body', 'api_response_body') AND SpanId != '')
    OR (SpanId != '' AND startsWith(Body, '{') AND position(Body, '"messages"') > 0
        AND (JSONHas(Body, 'input', 'messages') OR JSONHas(Body, 'output', 'messages')))
GROUP BY hour_s
ORDER BY hour_s
