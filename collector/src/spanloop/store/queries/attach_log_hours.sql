-- Hours (seconds since the epoch) of a foreign log table, from a moment on, with how many records they hold that tell of a model call, its exception or an evaluation.
SELECT
    toUnixTimestamp(toStartOfHour(Timestamp)) AS hour_s,
    count() AS records
FROM (
    -- Older tables have no column EventName.
    SELECT Timestamp, SpanId, LogAttributes['event.name'] AS attribute, concat('', COLUMNS('^EventName$'), '') AS named
    FROM {logs_table:Identifier}
    WHERE Timestamp >= fromUnixTimestamp64Nano({since_ns:Int64}, 'UTC')
)
WHERE startsWith(if(named != '', named, attribute) AS told, 'gen_ai.') OR (told = 'exception' AND SpanId != '')
GROUP BY hour_s
ORDER BY hour_s
