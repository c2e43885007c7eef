-- The store's first schema. Statements end with a semicolon at the end of a line.
-- otel_traces and otel_logs: the OpenTelemetry ClickHouse exporter's Map-variant tables (as of its 0.151), column for
-- column less its materialised Kubernetes attributes and most of its skip indexes, then ours.
-- Windows make a retried block (same insert_deduplication_token) vanish; only the writer feeds these tables.

CREATE TABLE IF NOT EXISTS otel_traces (
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    ParentSpanId String CODEC(ZSTD(1)),
    TraceState String CODEC(ZSTD(1)),
    SpanName LowCardinality(String) CODEC(ZSTD(1)),
    SpanKind LowCardinality(String) CODEC(ZSTD(1)),
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion String CODEC(ZSTD(1)),
    SpanAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    Duration UInt64 CODEC(T64, ZSTD(1)),
    StatusCode LowCardinality(String) CODEC(ZSTD(1)),
    StatusMessage String CODEC(ZSTD(1)),
    Events Nested (
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    Links Nested (
        TraceId String,
        SpanId String,
        TraceState String,
        Attributes Map(LowCardinality(String), String)
    ) CODEC(ZSTD(1)),
    ResourceAttributeItems Array(String) ALIAS arrayMap(kv -> concat(kv.1, '=', kv.2), CAST(ResourceAttributes, 'Array(Tuple(String, String))')),
    SpanAttributeItems Array(String) ALIAS arrayMap(kv -> concat(kv.1, '=', kv.2), CAST(SpanAttributes, 'Array(Tuple(String, String))')),

    -- ours: what the exporter drops
    IngestedAt DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),
    TraceFlags UInt32 DEFAULT 0 CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) DEFAULT '' CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) DEFAULT '' CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    DroppedAttributesCount UInt32 DEFAULT 0 CODEC(ZSTD(1)),
    DroppedEventsCount UInt32 DEFAULT 0 CODEC(ZSTD(1)),
    DroppedLinksCount UInt32 DEFAULT 0 CODEC(ZSTD(1)),

    -- ours: what pages and converters filter on, without reading a Map
    GenAiOperation LowCardinality(String) MATERIALIZED SpanAttributes['gen_ai.operation.name'] CODEC(ZSTD(1)),
    GenAiRequestModel LowCardinality(String) MATERIALIZED SpanAttributes['gen_ai.request.model'] CODEC(ZSTD(1)),
    GenAiResponseModel LowCardinality(String) MATERIALIZED SpanAttributes['gen_ai.response.model'] CODEC(ZSTD(1)),
    GenAiResponseId String MATERIALIZED SpanAttributes['gen_ai.response.id'] CODEC(ZSTD(1)),
    GenAiConversationId String MATERIALIZED SpanAttributes['gen_ai.conversation.id'] CODEC(ZSTD(1)),
    GenAiAgentName LowCardinality(String) MATERIALIZED SpanAttributes['gen_ai.agent.name'] CODEC(ZSTD(1)),
    GenAiToolName LowCardinality(String) MATERIALIZED SpanAttributes['gen_ai.tool.name'] CODEC(ZSTD(1)),
    GenAiToolCallId String MATERIALIZED SpanAttributes['gen_ai.tool.call.id'] CODEC(ZSTD(1)),
    GenAiInputTokens UInt32 MATERIALIZED toUInt32OrZero(SpanAttributes['gen_ai.usage.input_tokens']) CODEC(ZSTD(1)),
    GenAiOutputTokens UInt32 MATERIALIZED toUInt32OrZero(SpanAttributes['gen_ai.usage.output_tokens']) CODEC(ZSTD(1)),
    ErrorType LowCardinality(String) MATERIALIZED SpanAttributes['error.type'] CODEC(ZSTD(1)),
    SessionId String MATERIALIZED SpanAttributes['session.id'] CODEC(ZSTD(1)),
    SpanloopTaskId String MATERIALIZED SpanAttributes['spanloop.task.id'] CODEC(ZSTD(1)),
    SpanloopEpisodeId String MATERIALIZED SpanAttributes['spanloop.episode.id'] CODEC(ZSTD(1)),

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1,
    INDEX idx_response_id GenAiResponseId TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

CREATE TABLE IF NOT EXISTS otel_logs (
    Timestamp DateTime64(9) CODEC(Delta(8), ZSTD(1)),
    TraceId String CODEC(ZSTD(1)),
    SpanId String CODEC(ZSTD(1)),
    TraceFlags UInt8,
    SeverityText LowCardinality(String) CODEC(ZSTD(1)),
    SeverityNumber UInt8,
    ServiceName LowCardinality(String) CODEC(ZSTD(1)),
    Body String CODEC(ZSTD(1)),
    ResourceSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ResourceAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    ScopeSchemaUrl LowCardinality(String) CODEC(ZSTD(1)),
    ScopeName String CODEC(ZSTD(1)),
    ScopeVersion LowCardinality(String) CODEC(ZSTD(1)),
    ScopeAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    LogAttributes Map(LowCardinality(String), String) CODEC(ZSTD(1)),
    EventName String CODEC(ZSTD(1)),

    IngestedAt DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 1000;

-- Last write wins by score_id. Which of the target ids are filled in says what the score is for.
CREATE TABLE IF NOT EXISTS scores (
    score_id String,
    name LowCardinality(String),
    value Float64,
    label String,
    comment String,
    source LowCardinality(String),
    trace_id String,
    span_id String,
    response_id String,
    session_id String,
    episode_key String COMMENT 'spanloop.episode.id of the app, not the converter''s episode_id',
    task_id String,
    scored_at DateTime64(9, 'UTC'),
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    is_deleted UInt8 DEFAULT 0
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY score_id
SETTINGS non_replicated_deduplication_window = 1000;

-- OpenTelemetry's carrier of a reward is the log event gen_ai.evaluation.result.
CREATE MATERIALIZED VIEW IF NOT EXISTS scores_from_logs TO scores AS
SELECT
    lower(hex(sipHash128(
        TraceId, SpanId, toUnixTimestamp64Nano(Timestamp), LogAttributes['gen_ai.evaluation.name'],
        LogAttributes['gen_ai.response.id'], LogAttributes['session.id'],
        LogAttributes['spanloop.episode.id'], LogAttributes['spanloop.task.id']
    ))) AS score_id,
    LogAttributes['gen_ai.evaluation.name'] AS name,
    toFloat64OrDefault(LogAttributes['gen_ai.evaluation.score.value'], nan) AS value,
    LogAttributes['gen_ai.evaluation.score.label'] AS label,
    LogAttributes['gen_ai.evaluation.explanation'] AS comment,
    'otel_log' AS source,
    TraceId AS trace_id,
    SpanId AS span_id,
    LogAttributes['gen_ai.response.id'] AS response_id,
    LogAttributes['session.id'] AS session_id,
    LogAttributes['spanloop.episode.id'] AS episode_key,
    LogAttributes['spanloop.task.id'] AS task_id,
    toTimeZone(Timestamp, 'UTC') AS scored_at,
    IngestedAt AS ingested_at
FROM otel_logs
WHERE EventName = 'gen_ai.evaluation.result' OR LogAttributes['event.name'] = 'gen_ai.evaluation.result';

-- One row for each choice that the gateway's engine sampled.
CREATE TABLE IF NOT EXISTS generations (
    generation_id String COMMENT 'response id, slash, choice index',
    response_id String,
    choice_index UInt16,
    trace_id String COMMENT 'from the caller''s traceparent; empty without one',
    parent_span_id String COMMENT 'from the caller''s traceparent: the span that made the HTTP call',
    model LowCardinality(String),
    policy_version LowCardinality(String) COMMENT 'the weight version that answered, name@version',
    prompt_token_ids Array(UInt32) CODEC(ZSTD(1)),
    response_token_ids Array(UInt32) CODEC(ZSTD(1)),
    logprobs Array(Float32) COMMENT 'natural log, parallel to response_token_ids' CODEC(ZSTD(1)),
    finish_reason LowCardinality(String),
    is_complete Bool COMMENT 'false when the stream broke or the caller went away',
    sampling Map(LowCardinality(String), String) COMMENT 'temperature, top_p, seed, … as sent',
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    INDEX idx_response_id response_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = ReplacingMergeTree(ingested_at)
PARTITION BY toYYYYMM(started_at)
ORDER BY (toDateTime(started_at), generation_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- The newest revision of each episode; is_deleted = 1 is a tombstone (its spans joined another episode).
CREATE TABLE IF NOT EXISTS episodes (
    episode_id String COMMENT 'smallest member key',
    revision UInt64 COMMENT 'microseconds since the epoch of the newest member''s ingestion',
    is_deleted UInt8 DEFAULT 0,
    converter_version LowCardinality(String),
    episode_key String COMMENT 'spanloop.episode.id given by the app, empty without one',
    task_id String,
    group_id String,
    session_id String,
    service_name LowCardinality(String),
    agent_name LowCardinality(String),
    model LowCardinality(String),
    policy_version LowCardinality(String),
    trace_ids Array(String),
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    step_count UInt32,
    span_count UInt32,
    tool_call_count UInt32,
    tool_error_count UInt32,
    input_tokens UInt64,
    output_tokens UInt64,
    outcome LowCardinality(String) COMMENT 'success, failure or unknown',
    reward Nullable(Float64),
    reward_breakdown Map(LowCardinality(String), Float64),
    is_terminated Bool,
    is_truncated Bool,
    error_class LowCardinality(String) COMMENT 'of the failure that decided the episode; empty without one',
    fault_owner LowCardinality(String),
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(revision)
ORDER BY episode_id;

-- Kept per revision, so that a dataset manifest can pin (episode_id, revision).
CREATE TABLE IF NOT EXISTS transitions (
    transition_id String COMMENT 'episode_id, slash, step',
    episode_id String,
    revision UInt64,
    step UInt32 COMMENT 'from 0, in the order of the policy''s actions',
    task_id String,
    group_id String,
    agent_name LowCardinality(String),
    trace_id String,
    span_id String,
    response_id String,
    model LowCardinality(String),
    policy_version LowCardinality(String),
    state String COMMENT 'JSON: canonical messages that the policy saw' CODEC(ZSTD(1)),
    tools String COMMENT 'JSON: tool definitions that it was offered' CODEC(ZSTD(1)),
    action String COMMENT 'JSON: the assistant message' CODEC(ZSTD(1)),
    tool_results String COMMENT 'JSON: what its tool calls returned, with status and error' CODEC(ZSTD(1)),
    next_state String COMMENT 'JSON: messages of the next step, empty at the end' CODEC(ZSTD(1)),
    reward Nullable(Float64),
    reward_breakdown Map(LowCardinality(String), Float64),
    is_terminated Bool,
    is_truncated Bool,
    finish_reason LowCardinality(String),
    sampling Map(LowCardinality(String), String),
    token_source LowCardinality(String),
    capture_join LowCardinality(String) COMMENT 'response_id, traceparent or empty',
    prompt_token_ids Array(UInt32) CODEC(ZSTD(1)),
    response_token_ids Array(UInt32) CODEC(ZSTD(1)),
    logprobs Array(Float32) CODEC(ZSTD(1)),
    is_trainable Bool,
    untrainable_reason LowCardinality(String),
    untrainable_detail String,
    tool_error_count UInt32,
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    input_tokens UInt32,
    output_tokens UInt32,
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (episode_id, revision, step);

-- Token rows for the trainer: consecutive steps merged where the prompt extends the previous prompt plus completion.
CREATE TABLE IF NOT EXISTS trajectories (
    trajectory_id String COMMENT 'episode_id, slash, row number',
    episode_id String,
    revision UInt64,
    row_number UInt32,
    task_id String,
    group_id String,
    agent_name LowCardinality(String),
    policy_version LowCardinality(String),
    first_step UInt32,
    last_step UInt32,
    row_start LowCardinality(String) COMMENT 'why the row begins here',
    prompt_token_ids Array(UInt32) CODEC(ZSTD(1)),
    response_token_ids Array(UInt32) CODEC(ZSTD(1)),
    loss_mask Array(UInt8) COMMENT '1 where the policy sampled the token; parallel to response_token_ids' CODEC(ZSTD(1)),
    logprobs Array(Float32) COMMENT '0 where loss_mask is 0; parallel to response_token_ids' CODEC(ZSTD(1)),
    reward Nullable(Float64),
    is_trainable Bool,
    untrainable_reason LowCardinality(String),
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (episode_id, revision, row_number);

CREATE TABLE IF NOT EXISTS failures (
    failure_id String COMMENT 'episode_id, slash, number',
    episode_id String,
    revision UInt64,
    task_id String,
    trace_id String,
    span_id String COMMENT 'the culprit',
    step UInt32,
    agent_name LowCardinality(String),
    tool_name LowCardinality(String),
    model LowCardinality(String),
    policy_version LowCardinality(String),
    error_class LowCardinality(String),
    fault_owner LowCardinality(String),
    is_recovered Bool COMMENT 'the episode went on and did not fail because of it',
    message String,
    evidence String COMMENT 'JSON: what the rule saw',
    confidence Float32 COMMENT '0 to 1',
    rule LowCardinality(String),
    fingerprint String COMMENT 'groups the same failure over episodes',
    occurred_at DateTime64(9, 'UTC'),
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (episode_id, revision, failure_id);

CREATE TABLE IF NOT EXISTS training_metrics (
    job_id String,
    step UInt32,
    name LowCardinality(String),
    value Float64,
    recorded_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (job_id, name, step);

-- How far the pipeline has read; last write wins.
CREATE TABLE IF NOT EXISTS pipeline_state (
    name String,
    value String,
    updated_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(updated_at)
ORDER BY name;
