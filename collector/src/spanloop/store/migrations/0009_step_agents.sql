-- The graph of agents asks of a step which agent took it, and where its model call lies in its trace. Stored steps have no
-- agent here until they are converted again; their episode names one.
ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS agent_name LowCardinality(String);

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS trace_id String CODEC(ZSTD(1));

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS span_id String CODEC(ZSTD(1));

ALTER TABLE step_summaries_mv MODIFY QUERY
SELECT
    started_at, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, untrainable_reason,
    tool_error_count, error_class, fault_owner, input_tokens, output_tokens, duration_ns, finish_reason, tool_names, converted_at,
    cached_tokens, first_token_ns, result_tools, result_durations_ns, agent_name, trace_id, span_id
FROM transition_rows;
