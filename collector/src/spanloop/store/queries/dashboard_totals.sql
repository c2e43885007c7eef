-- How much the store holds since a moment: spans, episodes by outcome, tokens, transitions by trainability.
WITH
    toDateTime64({since_s:Int64}, 9, 'UTC') AS since,
    current AS (
        SELECT episode_id, revision, outcome, reward, step_count, tool_call_count, tool_error_count, input_tokens, output_tokens
        FROM episodes FINAL
        WHERE is_deleted = 0 AND started_at >= since
    )
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
    (SELECT count() FROM otel_traces WHERE Timestamp >= since) AS spans,
    (SELECT max(IngestedAt) FROM otel_traces) AS last_ingested_at,
    (
        SELECT (count(), countIf(is_trainable))
        FROM transitions FINAL
        WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM current)
    ) AS counted,
    counted.1 AS transitions,
    counted.2 AS trainable_transitions
FROM current
