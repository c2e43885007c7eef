-- Data sets: named lists of episode revisions, which never change. A version is one row of data_sets, inserted after its episodes,
-- so a version without its row does not exist.
CREATE TABLE IF NOT EXISTS data_sets (
    data_set_id String,
    name String,
    version UInt32,
    created_at DateTime64(6, 'UTC'),
    created_by LowCardinality(String),
    source String,
    comment String,
    episodes UInt64,
    added UInt64,
    rejected Map(LowCardinality(String), UInt32),
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY data_set_id;

-- episodes keeps the newest revision of an episode alone, so the row of a pinned one is copied.
CREATE TABLE IF NOT EXISTS data_set_episodes (
    data_set_id String,
    episode_id String,
    revision UInt64,
    converter_version LowCardinality(String),
    task_id String,
    group_id String,
    session_id String,
    service_name LowCardinality(String),
    agent_name LowCardinality(String),
    model LowCardinality(String),
    policy_version LowCardinality(String),
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    step_count UInt32,
    input_tokens UInt64,
    output_tokens UInt64,
    outcome LowCardinality(String),
    reward Nullable(Float64),
    reward_breakdown Map(LowCardinality(String), Float64),
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    marks Array(String),
    trace_ids Array(String)
) ENGINE = ReplacingMergeTree
ORDER BY (data_set_id, episode_id);
