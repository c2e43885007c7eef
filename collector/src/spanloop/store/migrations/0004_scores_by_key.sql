-- A score that was sent with a key of its own (POST /v1/scores, or an exporter that sets the attribute) is corrected and
-- deleted by that key; the others keep the key that what they say gives them.
ALTER TABLE scores_from_logs MODIFY QUERY
SELECT
    if(LogAttributes['spanloop.score.id'] != '', LogAttributes['spanloop.score.id'], lower(hex(sipHash128(
        TraceId, SpanId, toUnixTimestamp64Nano(Timestamp), LogAttributes['gen_ai.evaluation.name'],
        LogAttributes['gen_ai.response.id'], LogAttributes['session.id'],
        LogAttributes['spanloop.episode.id'], LogAttributes['spanloop.task.id']
    )))) AS score_id,
    LogAttributes['gen_ai.evaluation.name'] AS name,
    toFloat64OrDefault(LogAttributes['gen_ai.evaluation.score.value'], nan) AS value,
    LogAttributes['gen_ai.evaluation.score.label'] AS label,
    LogAttributes['gen_ai.evaluation.explanation'] AS comment,
    if(LogAttributes['spanloop.score.source'] != '', LogAttributes['spanloop.score.source'], 'otel_log') AS source,
    TraceId AS trace_id,
    SpanId AS span_id,
    LogAttributes['gen_ai.response.id'] AS response_id,
    LogAttributes['session.id'] AS session_id,
    LogAttributes['spanloop.episode.id'] AS episode_key,
    LogAttributes['spanloop.task.id'] AS task_id,
    toTimeZone(Timestamp, 'UTC') AS scored_at,
    IngestedAt AS ingested_at,
    toUInt8(LogAttributes['spanloop.score.deleted'] = 'true') AS is_deleted
FROM otel_logs
WHERE EventName = 'gen_ai.evaluation.result' OR LogAttributes['event.name'] = 'gen_ai.evaluation.result';
