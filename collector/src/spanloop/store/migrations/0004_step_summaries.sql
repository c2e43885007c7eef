-- What lists of steps and the use of tools read: narrow rows with a key that leads with time. transition_rows leads with the
-- episode's id, so a range of time lies in all of its granules.
CREATE TABLE IF NOT EXISTS step_summaries (
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    episode_id String CODEC(ZSTD(1)),
    revision UInt64 CODEC(ZSTD(1)),
    step UInt32,
    task_id String CODEC(ZSTD(1)),
    model LowCardinality(String),
    policy_version LowCardinality(String),
    reward Nullable(Float64),
    is_trainable Bool,
    untrainable_reason LowCardinality(String),
    tool_error_count UInt32,
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    input_tokens UInt32,
    output_tokens UInt32,
    duration_ns UInt64 CODEC(T64, ZSTD(1)),
    finish_reason LowCardinality(String),
    tool_names Array(LowCardinality(String)),
    converted_at DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1))
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (started_at, episode_id, revision, step)
SETTINGS index_granularity = 2048;

CREATE MATERIALIZED VIEW IF NOT EXISTS step_summaries_mv TO step_summaries AS
SELECT
    started_at, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, untrainable_reason,
    tool_error_count, error_class, fault_owner, input_tokens, output_tokens, duration_ns, finish_reason, tool_names, converted_at
FROM transition_rows;

INSERT INTO step_summaries
SELECT
    started_at, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, untrainable_reason,
    tool_error_count, error_class, fault_owner, input_tokens, output_tokens, duration_ns, finish_reason, tool_names, converted_at
FROM transition_rows;
