-- How well a policy version does on a set of tasks, and what that was computed from.

-- One row for each name and model; evaluating again replaces it. Written after its episodes: what is seen here is whole.
CREATE TABLE IF NOT EXISTS evaluations (
    evaluation_id String COMMENT 'name, colon, model',
    revision UInt64 COMMENT 'microseconds since the epoch when it was computed; its evaluation_episodes have the same',
    name LowCardinality(String) COMMENT 'of the evaluation: the same for all models that are compared',
    model LowCardinality(String) COMMENT 'the policy version, name@version',
    task_set String COMMENT 'which tasks were asked for, in words',
    created_at DateTime64(6, 'UTC'),
    started_at DateTime64(9, 'UTC') COMMENT 'of the first episode that counts',
    episodes UInt32 COMMENT 'that count',
    tasks UInt32 COMMENT 'that these are attempts at',
    success Float64 COMMENT 'mean over tasks of the share of attempts that succeeded',
    success_low Float64,
    success_high Float64,
    mean_reward Float64 COMMENT 'mean over tasks of the mean reward of the attempts',
    reward_low Float64,
    reward_high Float64,
    left_out Map(LowCardinality(String), UInt32) COMMENT 'episodes that do not count, by reason',
    level Float64 COMMENT 'of the intervals: 0.95',
    resamples UInt32 COMMENT 'of the bootstrap over tasks',
    seed UInt32 COMMENT 'of the bootstrap',
    parameters String COMMENT 'JSON: what was asked for',
    converter_version LowCardinality(String) COMMENT 'that made the episodes; several are joined by a comma'
) ENGINE = ReplacingMergeTree(revision)
ORDER BY evaluation_id;

-- The episodes of an evaluation, those that do not count too. Kept per revision, as transitions are.
CREATE TABLE IF NOT EXISTS evaluation_episodes (
    evaluation_id String,
    evaluation_revision UInt64,
    episode_id String,
    revision UInt64 COMMENT 'of the episode',
    task_id String COMMENT 'the episode''s task id, else its group id',
    left_out LowCardinality(String) COMMENT 'why it does not count; empty when it does',
    is_success Bool,
    reward Nullable(Float64),
    error_class LowCardinality(String) COMMENT 'of the failure that decided the episode; empty without one',
    error_classes Array(LowCardinality(String)) COMMENT 'of all failures that it did not recover from, each once',
    tool_calls Map(LowCardinality(String), UInt32) COMMENT 'tool name to how often it was called',
    failed_tool_calls Map(LowCardinality(String), UInt32) COMMENT 'tool name to how many of its calls failed'
) ENGINE = ReplacingMergeTree
ORDER BY (evaluation_id, evaluation_revision, episode_id);
