-- Totals of the store since a time: spans, episodes by outcome, tokens, transitions by trainability.
SELECT
    count() AS episodes,
    countIf(outcome = 'success') AS successes,
    countIf(outcome = 'failure') AS failures,
    sum(step_count) AS steps,
    sum(tool_call_count) AS tool_calls,
    sum(tool_error_count) AS tool_errors,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens,
    avg(reward) AS mean_reward,
    (
        SELECT count() FROM otel_traces
        WHERE {since_s:Int64} <= 0 OR Timestamp >= toDateTime64({since_s:Int64}, 9, 'UTC')
    ) AS spans,
    (
        SELECT max(ingested_at) FROM (SELECT ingested_at FROM trace_summaries ORDER BY ingested_at DESC LIMIT 1)
    ) AS last_ingested_at,
    sum(step_count) AS transitions,
    sum(trainable_step_count) AS trainable_transitions
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
