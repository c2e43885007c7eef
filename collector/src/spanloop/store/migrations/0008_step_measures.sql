-- What the page Numbers asks of a step beside its tokens and its duration: cached input tokens, the time to the first token, and
-- how long each tool took. Stored steps have the defaults until they are converted again.
ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS cached_tokens UInt32 DEFAULT 0;

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS first_token_ns Nullable(UInt64) DEFAULT NULL;

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS result_tools Array(LowCardinality(String)) DEFAULT [];

ALTER TABLE transition_rows ADD COLUMN IF NOT EXISTS result_durations_ns Array(UInt64) DEFAULT [];

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS cached_tokens UInt32;

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS first_token_ns Nullable(UInt64);

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS result_tools Array(LowCardinality(String));

ALTER TABLE step_summaries ADD COLUMN IF NOT EXISTS result_durations_ns Array(UInt64);

ALTER TABLE step_summaries_mv MODIFY QUERY
SELECT
    started_at, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, untrainable_reason,
    tool_error_count, error_class, fault_owner, input_tokens, output_tokens, duration_ns, finish_reason, tool_names, converted_at,
    cached_tokens, first_token_ns, result_tools, result_durations_ns
FROM transition_rows;
