-- What people say about episodes, steps and failures: one row is one version of one person's judgement of one target. Of equal
-- rows the one inserted last counts; a judgement is taken back by a further version, so nothing is lost.
CREATE TABLE IF NOT EXISTS judgements (
    judgement_id String,
    episode_id String,
    revision UInt64,
    scope LowCardinality(String),
    step UInt32,
    trace_id String,
    span_id String,
    fingerprint String,
    verdict LowCardinality(String),
    fault_owner LowCardinality(String),
    category LowCardinality(String),
    number Nullable(Float64),
    correction String,
    comment String,
    judged_by LowCardinality(String),
    judged_at DateTime64(9, 'UTC'),
    is_withdrawn UInt8,
    rule LowCardinality(String),
    rule_owner LowCardinality(String),
    rule_class LowCardinality(String),
    rule_outcome LowCardinality(String),
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    INDEX idx_episode_id episode_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_ingested_at ingested_at TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY (trace_id, judgement_id)
SETTINGS non_replicated_deduplication_window = 1000;

ALTER TABLE episodes ADD COLUMN IF NOT EXISTS judgements Array(String);
