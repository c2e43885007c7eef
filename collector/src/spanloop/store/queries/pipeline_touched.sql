-- Some of the traces that new spans, their log events, scores or captures concern, oldest first, from a place in that order on: how many spans they have and how many are new, whether they carry an id of an episode, conversation or session, and the services of calls without an episode id.
-- Spans and log records are looked for where summaries say that they are; a capture's span within a day of it; what no new
-- score names is not looked for at all.
WITH
    fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') AS since,
    fromUnixTimestamp64Micro({until_us:Int64}, 'UTC') AS until,
    (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE ingested_at > since) AS new_spans_at,
    (SELECT (min(first_at), max(last_at)) FROM log_summaries WHERE ingested_at > since) AS new_logs_at,
    (
        SELECT (
            groupUniqArrayIf(trace_id, trace_id != ''),
            groupUniqArrayIf(response_id, response_id != ''),
            groupUniqArrayIf(episode_key, episode_key != ''),
            groupUniqArrayIf(session_id, session_id != '' AND trace_id = '' AND response_id = '' AND episode_key = '')
        )
        FROM scores WHERE ingested_at > since AND ingested_at <= until
    ) AS scored,
    (
        SELECT (
            groupUniqArrayIf(trace_id, trace_id != ''),
            groupUniqArrayIf(response_id, response_id != ''),
            toDateTime64(greatest(toInt64(toUnixTimestamp(min(started_at))) - 86400, 0), 9, 'UTC'),
            toDateTime64(toInt64(toUnixTimestamp(max(started_at))) + 86400, 9, 'UTC')
        )
        FROM generations WHERE ingested_at > since AND ingested_at <= until
    ) AS captured,
    (
        SELECT groupUniqArray(trace_id) FROM (
            SELECT TraceId AS trace_id FROM otel_traces
            WHERE IngestedAt > since AND IngestedAt <= until AND Timestamp >= new_spans_at.1 AND Timestamp <= new_spans_at.2
            UNION ALL
            SELECT TraceId FROM otel_logs
            WHERE IngestedAt > since AND IngestedAt <= until AND SpanEventName != ''
                AND Timestamp >= new_logs_at.1 AND Timestamp <= new_logs_at.2
            UNION ALL
            SELECT arrayJoin(arrayConcat(scored.1, captured.1))
            UNION ALL
            SELECT TraceId FROM otel_traces
            WHERE notEmpty(captured.2) AND Timestamp >= captured.3 AND Timestamp <= captured.4
                AND GenAiResponseId IN (SELECT arrayJoin(captured.2))
            UNION ALL
            SELECT TraceId FROM otel_traces
            WHERE notEmpty(scored.2) AND GenAiResponseId IN (SELECT arrayJoin(scored.2))
            UNION ALL
            SELECT TraceId FROM otel_traces
            WHERE notEmpty(scored.3) AND SpanloopEpisodeId IN (SELECT arrayJoin(scored.3))
            UNION ALL
            SELECT TraceId FROM otel_traces
            WHERE notEmpty(scored.4)
                AND (SessionId != '' OR GenAiConversationId != '') AND hasAny([SessionId, GenAiConversationId], scored.4)
        )
    ) AS touched,
    (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE trace_id IN (SELECT arrayJoin(touched))) AS spans_at
SELECT
    TraceId AS trace_id,
    toUnixTimestamp64Nano(min(Timestamp)) AS started_ns,
    toUnixTimestamp64Nano(max(Timestamp)) AS ended_ns,
    count() AS spans,
    countIf(IngestedAt > fromUnixTimestamp64Micro({counted_since_us:Int64}, 'UTC') AND IngestedAt <= until) AS new_spans,
    max(SpanloopEpisodeId != '' OR GenAiConversationId != '' OR SessionId != '') AS is_named,
    groupUniqArrayIf(
        toString(ServiceName),
        SpanloopEpisodeId = '' AND IsModelCall
    ) AS bare_services
FROM otel_traces
WHERE TraceId IN (SELECT arrayJoin(touched)) AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
GROUP BY TraceId
HAVING (started_ns, trace_id) > ({after_ns:Int64}, {after_trace_id:String})
ORDER BY started_ns, trace_id
LIMIT {max_traces:UInt64}
