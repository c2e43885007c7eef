-- A page of the traces that new spans, log events, scores, judgements or captures affect, oldest first: number of spans and of new spans, and whether they have an episode, conversation or session id.
-- Summaries give the time ranges of spans and log records to read; the span of a capture is read within a day of it.
-- Targets that no new score names are not read.
-- Joins: global.
WITH
    fromUnixTimestamp64Micro({since_us:Int64}, 'UTC') AS since,
    fromUnixTimestamp64Micro({until_us:Int64}, 'UTC') AS until,
    (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE ingested_at > since) AS new_spans_at,
    (SELECT (min(first_at), max(last_at)) FROM log_summaries WHERE ingested_at > since) AS new_logs_at,
    new_scores AS (SELECT * FROM scores WHERE ingested_at > since AND ingested_at <= until),
    new_generations AS (
        SELECT trace_id, response_id, started_at FROM generations WHERE ingested_at > since AND ingested_at <= until
    ),
    (SELECT (toUnixTimestamp(min(started_at)), toUnixTimestamp(max(started_at))) FROM new_generations) AS captured_s,
    (SELECT (countIf(response_id != ''), countIf(episode_key != '')) FROM new_scores) AS scored,
    (
        SELECT groupUniqArray(session_id) FROM new_scores
        WHERE session_id != '' AND trace_id = '' AND response_id = '' AND episode_key = ''
    ) AS scored_sessions,
    affected AS (
        SELECT TraceId AS id FROM otel_traces
        WHERE IngestedAt > since AND IngestedAt <= until AND Timestamp >= new_spans_at.1 AND Timestamp <= new_spans_at.2
        UNION ALL
        SELECT TraceId FROM otel_logs
        WHERE IngestedAt > since AND IngestedAt <= until AND SpanEventName != ''
            AND Timestamp >= new_logs_at.1 AND Timestamp <= new_logs_at.2
        UNION ALL
        SELECT trace_id FROM new_scores WHERE trace_id != ''
        UNION ALL
        SELECT trace_id FROM judgements WHERE ingested_at > since AND ingested_at <= until
        UNION ALL
        SELECT trace_id FROM new_generations WHERE trace_id != ''
        UNION ALL
        SELECT TraceId FROM otel_traces
        WHERE Timestamp >= toDateTime64(greatest(toInt64(captured_s.1) - 86400, 0), 9, 'UTC')
            AND Timestamp <= toDateTime64(toInt64(captured_s.2) + 86400, 9, 'UTC')
            AND GenAiResponseId != '' AND GenAiResponseId IN (SELECT response_id FROM new_generations WHERE response_id != '')
        UNION ALL
        SELECT TraceId FROM otel_traces
        WHERE scored.1 > 0
            AND GenAiResponseId != '' AND GenAiResponseId IN (SELECT response_id FROM new_scores WHERE response_id != '')
        UNION ALL
        SELECT TraceId FROM otel_traces
        WHERE scored.2 > 0
            AND SpanloopEpisodeId != '' AND SpanloopEpisodeId IN (SELECT episode_key FROM new_scores WHERE episode_key != '')
        UNION ALL
        SELECT TraceId FROM otel_traces
        WHERE notEmpty(scored_sessions)
            AND (SessionId != '' OR GenAiConversationId != '') AND hasAny([SessionId, GenAiConversationId], scored_sessions)
    ),
    (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE trace_id IN (SELECT id FROM affected)) AS spans_at
SELECT
    TraceId AS trace_id,
    toUnixTimestamp64Nano(min(Timestamp)) AS started_ns,
    toUnixTimestamp64Nano(max(Timestamp)) AS ended_ns,
    count() AS spans,
    countIf(IngestedAt > fromUnixTimestamp64Micro({counted_since_us:Int64}, 'UTC') AND IngestedAt <= until) AS new_spans,
    max(SpanloopEpisodeId != '' OR GenAiConversationId != '' OR SessionId != '') AS is_named
FROM otel_traces
WHERE TraceId IN (SELECT id FROM affected) AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
GROUP BY TraceId
HAVING (started_ns, trace_id) > ({after_ns:Int64}, {after_trace_id:String})
ORDER BY started_ns, trace_id
LIMIT {max_traces:UInt64}
