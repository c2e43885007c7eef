-- What each step of a training job did with each row of its dataset. A step that a later attempt repeats has rows of both
-- attempts; those of the newest attempt count (queries keep them alone).
CREATE TABLE IF NOT EXISTS training_samples (
    job_id String,
    attempt UInt64 COMMENT 'number of the job''s attempt that trained on the row',
    step UInt32 COMMENT 'optimiser step of the job, from 1',
    sample UInt32 COMMENT 'position of the row in the job''s dataset, from 0',
    kind LowCardinality(String) COMMENT 'of the job: sft, grpo, …',
    episode_id String,
    revision UInt64,
    trajectory_id String,
    row_number UInt32 COMMENT 'of the token row in its episode',
    trained_steps Array(UInt32) COMMENT 'steps of the episode with a trained token in the row; empty in rows of earlier converters',
    group_id String,
    policy_version LowCardinality(String) COMMENT 'that sampled the row',
    tokens UInt32 COMMENT 'trained tokens of the row; the means below are over these',
    weight Float64 DEFAULT 1 COMMENT 'of the row in the loss',
    advantage Nullable(Float64) COMMENT 'mean; null for kinds without advantages, as the next four',
    old_logprob Nullable(Float64) COMMENT 'mean log-probability under the sampler, nats',
    new_logprob Nullable(Float64) COMMENT 'mean log-probability under the policy before the step''s update, nats',
    importance_mean Nullable(Float64) COMMENT 'mean of exp(new - old) of each token, before truncation',
    importance_max Nullable(Float64),
    loss Float64 COMMENT 'what the row adds to the step''s loss; of sft the row''s mean negative log-probability',
    age_versions Nullable(UInt32) COMMENT 'versions between the row''s policy and the job''s base',
    age_days Nullable(Float64) COMMENT 'days from the start of the row''s episode to the export of the dataset',
    recorded_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    INDEX episode episode_id TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (job_id, step, sample, attempt);
