-- What lists read instead of spans, episodes and failures: narrow rows with a key that leads with time. Every aggregate
-- of a trace gives the same when a span is counted twice, so a span sent twice, and these statements run again, change
-- nothing. Rows of one trace are merged by reading them with GROUP BY trace_id.

-- One row for each trace and insert; ten_minutes is that of the earliest of these spans. Neither partitions nor ZSTD: with
-- them the rows cost twice the CPU of an insert (docs/design/store.md).
CREATE TABLE IF NOT EXISTS trace_summaries (
    ten_minutes DateTime('UTC'),
    trace_id String,
    started_at SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    ended_at SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    ingested_at SimpleAggregateFunction(max, DateTime64(6, 'UTC')),
    root_name SimpleAggregateFunction(max, LowCardinality(String)) COMMENT 'of a span without a parent',
    service_name SimpleAggregateFunction(max, LowCardinality(String)),
    agent_name SimpleAggregateFunction(max, LowCardinality(String)),
    model SimpleAggregateFunction(max, LowCardinality(String)),
    task_id SimpleAggregateFunction(max, String),
    session_id SimpleAggregateFunction(max, String) COMMENT 'session.id, else gen_ai.conversation.id',
    spans SimpleAggregateFunction(groupUniqArrayArray, Array(UInt64)) COMMENT 'hashes of span ids',
    failed_spans SimpleAggregateFunction(groupUniqArrayArray, Array(UInt64)),
    calls SimpleAggregateFunction(maxMap, Map(UInt64, UInt64)) COMMENT 'hash of a model call''s span id to input tokens * 2^32 + output tokens',
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 8
) ENGINE = AggregatingMergeTree
ORDER BY (ten_minutes, trace_id)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

CREATE MATERIALIZED VIEW IF NOT EXISTS trace_summaries_mv TO trace_summaries AS
SELECT
    toStartOfTenMinutes(toDateTime(min(Timestamp), 'UTC')) AS ten_minutes,
    TraceId AS trace_id,
    toTimeZone(min(Timestamp), 'UTC') AS started_at,
    toTimeZone(max(Timestamp + toIntervalNanosecond(least(Duration, 4000000000000000000))), 'UTC') AS ended_at,
    max(IngestedAt) AS ingested_at,
    max(if(ParentSpanId = '', SpanName, '')) AS root_name,
    max(ServiceName) AS service_name,
    max(GenAiAgentName) AS agent_name,
    max(if(GenAiResponseModel != '', GenAiResponseModel, GenAiRequestModel)) AS model,
    max(SpanloopTaskId) AS task_id,
    max(if(SessionId != '', SessionId, GenAiConversationId)) AS session_id,
    groupUniqArray(cityHash64(SpanId)) AS spans,
    groupUniqArrayIf(cityHash64(SpanId), ErrorType != '' OR StatusCode IN ('Error', 'STATUS_CODE_ERROR')) AS failed_spans,
    maxMapIf(map(cityHash64(SpanId), bitOr(bitShiftLeft(toUInt64(GenAiInputTokens), 32), toUInt64(GenAiOutputTokens))), IsModelCall) AS calls
FROM otel_traces
WHERE TraceId != ''
GROUP BY TraceId;

INSERT INTO trace_summaries
SELECT
    toStartOfTenMinutes(toDateTime(min(Timestamp), 'UTC')) AS ten_minutes,
    TraceId AS trace_id,
    toTimeZone(min(Timestamp), 'UTC') AS started_at,
    toTimeZone(max(Timestamp + toIntervalNanosecond(least(Duration, 4000000000000000000))), 'UTC') AS ended_at,
    max(IngestedAt) AS ingested_at,
    max(if(ParentSpanId = '', SpanName, '')) AS root_name,
    max(ServiceName) AS service_name,
    max(GenAiAgentName) AS agent_name,
    max(if(GenAiResponseModel != '', GenAiResponseModel, GenAiRequestModel)) AS model,
    max(SpanloopTaskId) AS task_id,
    max(if(SessionId != '', SessionId, GenAiConversationId)) AS session_id,
    groupUniqArray(cityHash64(SpanId)) AS spans,
    groupUniqArrayIf(cityHash64(SpanId), ErrorType != '' OR StatusCode IN ('Error', 'STATUS_CODE_ERROR')) AS failed_spans,
    maxMapIf(map(cityHash64(SpanId), bitOr(bitShiftLeft(toUInt64(GenAiInputTokens), 32), toUInt64(GenAiOutputTokens))), IsModelCall) AS calls
FROM otel_traces
WHERE TraceId != ''
GROUP BY TraceId
SETTINGS max_bytes_before_external_group_by = 200000000, insert_deduplicate = 0;

-- The newest row of each episode, where it lies in time. A row that a later revision has moved elsewhere, or ended, is marked
-- by the second view; tombstones lie in 1970. The views see only the rows that are being inserted as "episodes".
CREATE TABLE IF NOT EXISTS episode_summaries (
    started_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    episode_id String CODEC(ZSTD(1)),
    revision UInt64 CODEC(ZSTD(1)),
    is_deleted UInt8 COMMENT '1: a later revision lies elsewhere, or a tombstone',
    episode_key String,
    converter_version LowCardinality(String),
    task_id String,
    group_id String,
    is_terminated Bool,
    task_set LowCardinality(String) MATERIALIZED extract(task_id, '^[^-_/.:]+[-_/.:]') COMMENT 'test-, train-: up to the first separator',
    session_id String,
    service_name LowCardinality(String),
    agent_name LowCardinality(String),
    policy_version LowCardinality(String),
    duration_ns UInt64 CODEC(T64, ZSTD(1)),
    step_count UInt32,
    trainable_step_count UInt32,
    span_count UInt32,
    tool_call_count UInt32,
    tool_error_count UInt32,
    input_tokens UInt64,
    output_tokens UInt64,
    outcome LowCardinality(String),
    reward Nullable(Float64),
    reward_breakdown Map(LowCardinality(String), Float64),
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    INDEX idx_policy_version policy_version TYPE set(64) GRANULARITY 1,
    INDEX idx_episode_id episode_id TYPE bloom_filter(0.001) GRANULARITY 4
) ENGINE = ReplacingMergeTree(revision)
ORDER BY (started_at, episode_id)
SETTINGS index_granularity = 2048;

CREATE MATERIALIZED VIEW IF NOT EXISTS episode_summaries_mv TO episode_summaries AS
SELECT
    e.started_at AS started_at, e.episode_id AS episode_id, e.revision AS revision, e.is_deleted AS is_deleted,
    e.episode_key AS episode_key, e.converter_version AS converter_version, e.task_id AS task_id, e.group_id AS group_id,
    e.is_terminated AS is_terminated, e.session_id AS session_id, e.service_name AS service_name,
    e.agent_name AS agent_name, e.policy_version AS policy_version, e.duration_ns AS duration_ns, e.step_count AS step_count,
    t.trainable AS trainable_step_count, e.span_count AS span_count, e.tool_call_count AS tool_call_count,
    e.tool_error_count AS tool_error_count, e.input_tokens AS input_tokens, e.output_tokens AS output_tokens,
    e.outcome AS outcome, e.reward AS reward, e.reward_breakdown AS reward_breakdown, e.error_class AS error_class,
    e.fault_owner AS fault_owner
FROM episodes AS e
LEFT JOIN (
    SELECT episode_id, revision, toUInt32(uniqExactIf(step, is_trainable)) AS trainable
    FROM transitions
    WHERE episode_id IN (SELECT episode_id FROM episodes)
    GROUP BY episode_id, revision
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision;

CREATE MATERIALIZED VIEW IF NOT EXISTS episode_summaries_moved_mv TO episode_summaries AS
SELECT
    if(e.revision >= old.revision, old.started_at, e.started_at) AS started_at,
    e.episode_id AS episode_id,
    greatest(e.revision, old.revision) AS revision,
    toUInt8(1) AS is_deleted
FROM episodes AS e
INNER JOIN (
    SELECT episode_id, started_at, max(revision) AS revision
    FROM episode_summaries
    WHERE episode_id IN (SELECT episode_id FROM episodes)
    GROUP BY episode_id, started_at
) AS old ON old.episode_id = e.episode_id
WHERE old.started_at != e.started_at;

INSERT INTO episode_summaries (
    started_at, episode_id, revision, is_deleted, episode_key, converter_version, task_id, group_id, is_terminated, session_id,
    service_name, agent_name, policy_version, duration_ns, step_count, trainable_step_count, span_count, tool_call_count,
    tool_error_count, input_tokens, output_tokens, outcome, reward, reward_breakdown, error_class, fault_owner
)
SELECT
    e.started_at AS started_at, e.episode_id AS episode_id, e.revision AS revision, e.is_deleted AS is_deleted,
    e.episode_key AS episode_key, e.converter_version AS converter_version, e.task_id AS task_id, e.group_id AS group_id,
    e.is_terminated AS is_terminated, e.session_id AS session_id, e.service_name AS service_name,
    e.agent_name AS agent_name, e.policy_version AS policy_version, e.duration_ns AS duration_ns, e.step_count AS step_count,
    t.trainable AS trainable_step_count, e.span_count AS span_count, e.tool_call_count AS tool_call_count,
    e.tool_error_count AS tool_error_count, e.input_tokens AS input_tokens, e.output_tokens AS output_tokens,
    e.outcome AS outcome, e.reward AS reward, e.reward_breakdown AS reward_breakdown, e.error_class AS error_class,
    e.fault_owner AS fault_owner
FROM (SELECT * FROM episodes FINAL) AS e
LEFT JOIN (
    SELECT episode_id, revision, toUInt32(uniqExactIf(step, is_trainable)) AS trainable
    FROM transitions
    WHERE episode_id IN (SELECT episode_id FROM episodes)
    GROUP BY episode_id, revision
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision
SETTINGS max_bytes_before_external_group_by = 200000000;

-- Failures of every revision; which of them are current, episode_summaries knows.
CREATE TABLE IF NOT EXISTS failure_summaries (
    occurred_at DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    episode_id String CODEC(ZSTD(1)),
    revision UInt64 CODEC(ZSTD(1)),
    failure_id String CODEC(ZSTD(1)),
    task_id String,
    step UInt32,
    span_id String,
    agent_name LowCardinality(String),
    tool_name LowCardinality(String),
    policy_version LowCardinality(String),
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    is_recovered Bool,
    headline String COMMENT 'the message''s first 300 characters' CODEC(ZSTD(1)),
    confidence Float32,
    rule LowCardinality(String),
    fingerprint LowCardinality(String),
    converted_at DateTime64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (occurred_at, episode_id, revision, failure_id)
SETTINGS index_granularity = 2048;

CREATE MATERIALIZED VIEW IF NOT EXISTS failure_summaries_mv TO failure_summaries AS
SELECT
    occurred_at, episode_id, revision, failure_id, task_id, step, span_id, agent_name, tool_name, policy_version, error_class,
    fault_owner, is_recovered, leftUTF8(message, 300) AS headline, confidence, rule, fingerprint, converted_at
FROM failures;

INSERT INTO failure_summaries
SELECT
    occurred_at, episode_id, revision, failure_id, task_id, step, span_id, agent_name, tool_name, policy_version, error_class,
    fault_owner, is_recovered, leftUTF8(message, 300) AS headline, confidence, rule, fingerprint, converted_at
FROM failures FINAL;

-- Scores and episodes have keys of their own; what else they are looked up by needs an index.
ALTER TABLE scores ADD INDEX IF NOT EXISTS idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1;

ALTER TABLE scores ADD INDEX IF NOT EXISTS idx_response_id response_id TYPE bloom_filter(0.001) GRANULARITY 1;

ALTER TABLE scores ADD INDEX IF NOT EXISTS idx_episode_key episode_key TYPE bloom_filter(0.001) GRANULARITY 1;

ALTER TABLE episodes ADD INDEX IF NOT EXISTS idx_trace_ids trace_ids TYPE bloom_filter(0.001) GRANULARITY 1;

ALTER TABLE scores MATERIALIZE INDEX IF EXISTS idx_trace_id;

ALTER TABLE scores MATERIALIZE INDEX IF EXISTS idx_response_id;

ALTER TABLE scores MATERIALIZE INDEX IF EXISTS idx_episode_key;

ALTER TABLE episodes MATERIALIZE INDEX IF EXISTS idx_trace_ids;

ALTER TABLE generations ADD INDEX IF NOT EXISTS idx_ingested_at ingested_at TYPE minmax GRANULARITY 1;

ALTER TABLE generations MATERIALIZE INDEX IF EXISTS idx_ingested_at;
