-- The store's schema, each table once. Statements end with a semicolon at the end of a line, and can run again.
-- Tables that several collectors insert into remember their last 50,000 blocks: the blocks of the others must not push a block
-- out of this window while its collector is down and has not seen the answer to its insert.


-- 1. What arrives.

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

    -- Wider than the converters' dialects are: it only says where a loop may go on, never what a span is. Spans keep the value
    -- that they were stored with.
    IsModelCall Bool MATERIALIZED
        SpanAttributes['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content')
        OR (
            SpanAttributes['gen_ai.request.model'] != ''
            AND (
                SpanAttributes['gen_ai.operation.name'] = ''
                OR (
                    SpanAttributes['gen_ai.operation.name'] NOT IN (
                        'execute_tool', 'invoke_agent', 'create_agent', 'embeddings', 'invoke_workflow', 'execute_task',
                        'retrieval', 'rerank'
                    )
                    AND (
                        mapContains(SpanAttributes, 'gen_ai.input.messages')
                        OR mapContains(SpanAttributes, 'gen_ai.output.messages')
                    )
                )
            )
        )
        OR upper(coalesce(
            nullIf(SpanAttributes['openinference.span.kind'], ''),
            nullIf(SpanAttributes['gen_ai.span.kind'], ''),
            nullIf(SpanAttributes['fi.span.kind'], ''),
            SpanAttributes['lmnr.span.type']
        )) = 'LLM'
        OR (mapContains(SpanAttributes, 'monocle_apptrace.version') AND match(SpanAttributes['span.type'], '^inference($|\\.)'))
        OR SpanAttributes['llm.request.type'] IN ('chat', 'completion')
        OR SpanAttributes['gen_ai.request.type'] IN ('chat', 'completion')
        OR match(SpanAttributes['ai.operationId'], '\\.do(Generate|Stream)$')
        OR SpanAttributes['span.kind'] IN ('LLM', '"LLM"')
        OR lower(trim(BOTH '"' FROM coalesce(
            nullIf(SpanAttributes['langfuse.observation.type'], ''),
            nullIf(SpanAttributes['langwatch.span.type'], ''),
            nullIf(SpanAttributes['langsmith.span.kind'], ''),
            nullIf(SpanAttributes['mlflow.spanType'], ''),
            nullIf(SpanAttributes['judgment.span_kind'], ''),
            nullIf(SpanAttributes['confident.span.type'], ''),
            nullIf(SpanAttributes['genkit:metadata:subtype'], ''),
            nullIf(SpanAttributes['neatlogs.span.kind'], ''),
            nullIf(SpanAttributes['honeyhive_event_type'], ''),
            nullIf(SpanAttributes['ag.type.node'], ''),
            nullIf(SpanAttributes['basalt.span.kind'], ''),
            SpanAttributes['ai.observability.span_type']
        ))) IN ('llm', 'chat_model', 'generation', 'model', 'chat', 'completion')
        OR endsWith(SpanAttributes['haystack.component.type'], 'Generator')
        OR mapContains(SpanAttributes, 'gen_ai.prompt.0.role')
        OR mapContains(SpanAttributes, 'gen_ai.prompt.0.content')
        OR mapContains(SpanAttributes, 'gen_ai.completion.0.role')
        OR mapContains(SpanAttributes, 'gen_ai.completion.0.content')
        OR mapContains(SpanAttributes, 'llm.prompts.0.role')
        OR mapContains(SpanAttributes, 'llm.prompts.0.content')
        OR mapContains(SpanAttributes, 'llm.completions.0.role')
        OR mapContains(SpanAttributes, 'llm.completions.0.content')
        OR SpanAttributes['mastra.span.type'] IN ('model_step', 'model_inference')
        OR (mapContains(SpanAttributes, 'llamaindex.run_id') AND hasAny(Events.Name, ['LLMChatStartEvent', 'LLMCompletionStartEvent']))
        OR (
            SpanName = 'call_llm'
            AND (
                mapContains(SpanAttributes, 'gcp.vertex.agent.llm_request')
                OR ScopeName IN ('gcp.vertex.agent', 'openinference.instrumentation.google_adk')
            )
        )
        OR (mapContains(SpanAttributes, 'provider') AND mapContains(SpanAttributes, 'function_input'))
        OR (SpanAttributes['type'] = 'llm' AND mapContains(SpanAttributes, 'status') AND mapContains(SpanAttributes, 'input'))
        OR SpanName = 'raw_gen_ai_request',

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1,
    INDEX idx_response_id GenAiResponseId TYPE bloom_filter(0.01) GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
PRIMARY KEY (ServiceName, SpanName, toDateTime(Timestamp))
ORDER BY (ServiceName, SpanName, toDateTime(Timestamp), Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 50000;

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

    -- ours
    IngestedAt DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),
    -- The name of a record that tells of its span, as instrumentors send messages and exceptions; empty for all others.
    SpanEventName LowCardinality(String) MATERIALIZED
        multiIf(
            SpanId = '', '',
            (if(EventName != '', EventName, LogAttributes['event.name']) AS told) = 'gen_ai.evaluation.result', '',
            startsWith(told, 'gen_ai.') OR told IN ('exception', 'api_request_body', 'api_response_body'), told,
            ''
        ),

    INDEX idx_trace_id TraceId TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1
) ENGINE = MergeTree
PARTITION BY toDate(Timestamp)
ORDER BY (toStartOfFiveMinutes(Timestamp), ServiceName, Timestamp)
SETTINGS index_granularity = 8192, ttl_only_drop_parts = 1, non_replicated_deduplication_window = 50000;

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
    is_deleted UInt8 DEFAULT 0,
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_response_id response_id TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_episode_key episode_key TYPE bloom_filter(0.001) GRANULARITY 1,
    INDEX idx_ingested_at ingested_at TYPE minmax GRANULARITY 1
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY score_id
SETTINGS non_replicated_deduplication_window = 1000;

-- OpenTelemetry's carrier of a reward is the log event gen_ai.evaluation.result. A score that was sent with a key of its own
-- (POST /v1/scores, or an exporter that sets the attribute) is corrected and deleted by that key; the others have the key that
-- what they say gives them.
CREATE MATERIALIZED VIEW IF NOT EXISTS scores_from_logs TO scores AS
SELECT
    if(LogAttributes['spanloop.score.id'] != '', LogAttributes['spanloop.score.id'], lower(hex(sipHash128(
        TraceId, SpanId, toUnixTimestamp64Nano(Timestamp), LogAttributes['gen_ai.evaluation.name'],
        LogAttributes['gen_ai.response.id'], LogAttributes['session.id'],
        LogAttributes['spanloop.episode.id'], LogAttributes['spanloop.task.id']
    )))) AS score_id,
    LogAttributes['gen_ai.evaluation.name'] AS name,
    toFloat64OrDefault(LogAttributes['gen_ai.evaluation.score.value'], nan) AS value,
    LogAttributes['gen_ai.evaluation.score.label'] AS label,
    LogAttributes['gen_ai.evaluation.explanation'] AS comment,
    if(LogAttributes['spanloop.score.source'] != '', LogAttributes['spanloop.score.source'], 'otel_log') AS source,
    TraceId AS trace_id,
    SpanId AS span_id,
    LogAttributes['gen_ai.response.id'] AS response_id,
    LogAttributes['session.id'] AS session_id,
    LogAttributes['spanloop.episode.id'] AS episode_key,
    LogAttributes['spanloop.task.id'] AS task_id,
    toTimeZone(Timestamp, 'UTC') AS scored_at,
    IngestedAt AS ingested_at,
    toUInt8(LogAttributes['spanloop.score.deleted'] = 'true') AS is_deleted
FROM otel_logs
WHERE EventName = 'gen_ai.evaluation.result' OR LogAttributes['event.name'] = 'gen_ai.evaluation.result';

-- One row for each choice that the gateway's engine sampled. Rows are looked for by many ids at once: of a hundred, a filter that
-- errs for one in a hundred finds most blocks.
CREATE TABLE IF NOT EXISTS generations (
    generation_id String COMMENT 'response id, slash, choice index',
    response_id String,
    choice_index UInt16,
    trace_id String COMMENT 'from the caller''s traceparent; empty without one',
    parent_span_id String COMMENT 'from the caller''s traceparent: the span that made the HTTP call',
    model LowCardinality(String),
    policy_version LowCardinality(String) COMMENT 'the weight version that answered, name@version',
    tokenizer LowCardinality(String) COMMENT 'fingerprint of tokenizer and chat template of these weights; empty where the gateway does not know it',
    prompt_token_ids Array(UInt32) CODEC(ZSTD(1)),
    response_token_ids Array(UInt32) CODEC(ZSTD(1)),
    logprobs Array(Float32) COMMENT 'natural log, parallel to response_token_ids' CODEC(ZSTD(1)),
    finish_reason LowCardinality(String),
    is_complete Bool COMMENT 'false when the stream broke or the caller went away',
    sampling Map(LowCardinality(String), String) COMMENT 'temperature, top_p, seed, … as sent',
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    INDEX idx_ingested_at ingested_at TYPE minmax GRANULARITY 1,
    INDEX idx_response_ids response_id TYPE bloom_filter(0.0001) GRANULARITY 1,
    INDEX idx_trace_ids trace_id TYPE bloom_filter(0.0001) GRANULARITY 1
) ENGINE = ReplacingMergeTree(ingested_at)
PARTITION BY toYYYYMM(started_at)
ORDER BY (toDateTime(started_at), generation_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- What could not be accepted, as it came. Last write wins by dead_letter_id, which depends on the content alone: the
-- same bytes refused again for the same reason are one row, and a replay marks it.
CREATE TABLE IF NOT EXISTS dead_letters (
    dead_letter_id String COMMENT '32 hex digits of the content''s hash',
    received_at DateTime64(9, 'UTC'),
    signal LowCardinality(String) COMMENT 'traces, logs, or the kind of an unreadable spool record',
    reason LowCardinality(String),
    detail String COMMENT 'got and expected, of the first item',
    content_type LowCardinality(String) COMMENT 'of the raw body: protobuf or JSON',
    raw_base64 String COMMENT 'a whole request body with these items and nothing else' CODEC(ZSTD(3)),
    item_count UInt32,
    trace_ids Array(String) COMMENT 'of the first 100 items, without repetition',
    span_ids Array(String),
    replayed_at DateTime64(9, 'UTC') DEFAULT toDateTime64(0, 9, 'UTC') COMMENT '1970 until it was accepted',
    written_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(written_at)
ORDER BY dead_letter_id
TTL toDateTime(received_at) + INTERVAL 90 DAY
SETTINGS non_replicated_deduplication_window = 1000;


-- 2. What the pipeline makes of it.

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
    marks Array(String) COMMENT 'labels of the scores named spanloop.mark, of one label the newest',
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC'),
    INDEX idx_trace_ids trace_ids TYPE bloom_filter(0.001) GRANULARITY 1
) ENGINE = ReplacingMergeTree(revision)
ORDER BY episode_id;

-- Messages are stored once for each episode revision, and transition_rows refer to them by number. All revisions are kept, so that a
-- dataset's manifest can pin (episode_id, revision).
-- Small granules: rows of an episode are read through the view, which reads whole granules of wide columns.
CREATE TABLE IF NOT EXISTS episode_messages (
    episode_id String,
    revision UInt64,
    number UInt32 COMMENT 'from 0, in the order in which the episode''s states show the messages',
    message String COMMENT 'JSON: one canonical message' CODEC(ZSTD(1)),
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (episode_id, revision, number)
SETTINGS index_granularity = 256;

CREATE TABLE IF NOT EXISTS transition_rows (
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
    state Array(UInt32) COMMENT 'message numbers that the policy saw: from, to (exclusive), from, to, …' CODEC(ZSTD(1)),
    tools String COMMENT 'JSON: tool definitions that it was offered' CODEC(ZSTD(1)),
    action String COMMENT 'JSON: the assistant message' CODEC(ZSTD(1)),
    tool_results String COMMENT 'JSON: what its tool calls returned, with status and error' CODEC(ZSTD(1)),
    next_state Array(UInt32) COMMENT 'message numbers of the next step, as in state; 0, 0 at the end' CODEC(ZSTD(1)),
    reward Nullable(Float64),
    reward_breakdown Map(LowCardinality(String), Float64),
    is_terminated Bool,
    is_truncated Bool,
    finish_reason LowCardinality(String),
    sampling Map(LowCardinality(String), String),
    token_source LowCardinality(String),
    capture_join LowCardinality(String) COMMENT 'response_id, traceparent or empty',
    prompt_token_ids Array(UInt32) COMMENT 'empty where prompt_step is another step' CODEC(ZSTD(1)),
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
    prompt_step UInt32 COMMENT 'the step whose prompt_token_ids begin with this step''s',
    prompt_length UInt32 COMMENT 'number of this step''s prompt tokens',
    converted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(converted_at)
ORDER BY (episode_id, revision, step)
SETTINGS index_granularity = 256;

-- Always empty. Its rows were moved to the tables above before this schema was made; a table of an adopted database does not
-- change, so the table and its part of the views stay until the next migration.
CREATE TABLE IF NOT EXISTS legacy_transitions (
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

-- transition_rows with their messages. A filter on episode_id and revision reaches every table below.
CREATE VIEW IF NOT EXISTS transitions AS
SELECT
    t.transition_id AS transition_id, t.episode_id AS episode_id, t.revision AS revision, t.step AS step,
    t.task_id AS task_id, t.group_id AS group_id, t.agent_name AS agent_name, t.trace_id AS trace_id,
    t.span_id AS span_id, t.response_id AS response_id, t.model AS model, t.policy_version AS policy_version,
    concat('[', arrayStringConcat(arrayFlatten(arrayMap(
        at -> arraySlice(m.messages, t.state[at] + 1, t.state[at + 1] - t.state[at]), range(1, length(t.state), 2)
    )), ','), ']') AS state,
    t.tools AS tools, t.action AS action, t.tool_results AS tool_results,
    if(t.next_state = [0, 0], '', concat('[', arrayStringConcat(arrayFlatten(arrayMap(
        at -> arraySlice(m.messages, t.next_state[at] + 1, t.next_state[at + 1] - t.next_state[at]),
        range(1, length(t.next_state), 2)
    )), ','), ']')) AS next_state,
    t.reward AS reward, t.reward_breakdown AS reward_breakdown, t.is_terminated AS is_terminated,
    t.is_truncated AS is_truncated, t.finish_reason AS finish_reason, t.sampling AS sampling,
    t.token_source AS token_source, t.capture_join AS capture_join,
    if(t.prompt_step = t.step, t.prompt_token_ids, arraySlice(p.prompt_token_ids, 1, t.prompt_length)) AS prompt_token_ids,
    t.response_token_ids AS response_token_ids, t.logprobs AS logprobs, t.is_trainable AS is_trainable,
    t.untrainable_reason AS untrainable_reason, t.untrainable_detail AS untrainable_detail,
    t.tool_error_count AS tool_error_count, t.error_class AS error_class, t.fault_owner AS fault_owner,
    t.input_tokens AS input_tokens, t.output_tokens AS output_tokens, t.started_at AS started_at,
    t.duration_ns AS duration_ns, t.converted_at AS converted_at
FROM (SELECT * FROM transition_rows FINAL) AS t
LEFT JOIN (
    SELECT episode_id, revision, 1 AS is_legacy FROM legacy_transitions GROUP BY episode_id, revision
) AS l ON l.episode_id = t.episode_id AND l.revision = t.revision
LEFT JOIN (
    SELECT episode_id, revision, arrayMap(pair -> pair.2, arraySort(groupArray((number, message)))) AS messages
    FROM episode_messages FINAL
    GROUP BY episode_id, revision
) AS m ON m.episode_id = t.episode_id AND m.revision = t.revision
LEFT JOIN (
    SELECT episode_id, revision, step, prompt_token_ids FROM transition_rows FINAL WHERE notEmpty(prompt_token_ids)
) AS p ON p.episode_id = t.episode_id AND p.revision = t.revision AND p.step = t.prompt_step
WHERE l.is_legacy = 0
UNION ALL
SELECT * FROM legacy_transitions FINAL;

-- Revisions with a successor; they are erased after a while, unless a dataset names them (spanloop.pipeline.replaced_revisions).
CREATE TABLE IF NOT EXISTS replaced_revisions (
    episode_id String,
    revision UInt64,
    replaced_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(replaced_at)
ORDER BY (episode_id, revision);

-- Revisions that a dataset's manifest names.
CREATE TABLE IF NOT EXISTS pinned_revisions (
    episode_id String,
    revision UInt64,
    pinned_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(pinned_at)
ORDER BY (episode_id, revision);

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
    sampled_steps Array(UInt32) COMMENT 'the steps whose sampled tokens the row has, in order; empty in rows of earlier converters',
    sampled_starts Array(UInt32) COMMENT 'position in response_token_ids of the first token that each of sampled_steps sampled',
    sampled_ends Array(UInt32) COMMENT 'position behind the last token that each of sampled_steps sampled',
    step_rewards Array(Nullable(Float64)) COMMENT 'reward of each of sampled_steps by scores of this call alone; null without one',
    tokenizers Array(LowCardinality(String)) COMMENT 'fingerprints that the captures of the row''s steps carry; empty text for a step without one',
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

-- How far the pipeline has read; last write wins.
CREATE TABLE IF NOT EXISTS pipeline_state (
    name String,
    value String,
    updated_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(updated_at)
ORDER BY name;


-- 3. What lists and lookups read instead of spans, log records, episodes and failures: narrow rows with a key that leads with time.
-- Every aggregate gives the same when a row is counted twice, so a span sent twice changes nothing. Rows of one trace are
-- merged by reading them with GROUP BY trace_id.

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
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 8,
    INDEX idx_ingested_at ingested_at TYPE minmax GRANULARITY 1
) ENGINE = AggregatingMergeTree
ORDER BY (ten_minutes, trace_id)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 50000;

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

-- Where a trace's log records that tell of its spans lie in time: one row for each trace and ten minutes; read with min and max.
CREATE TABLE IF NOT EXISTS log_summaries (
    ten_minutes DateTime('UTC'),
    trace_id String,
    first_at SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    last_at SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    ingested_at SimpleAggregateFunction(max, DateTime64(6, 'UTC')),
    INDEX idx_trace_id trace_id TYPE bloom_filter(0.001) GRANULARITY 8,
    INDEX idx_ingested_at ingested_at TYPE minmax GRANULARITY 1
) ENGINE = AggregatingMergeTree
ORDER BY (ten_minutes, trace_id)
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 50000;

CREATE MATERIALIZED VIEW IF NOT EXISTS log_summaries_mv TO log_summaries AS
SELECT
    toStartOfTenMinutes(toDateTime(Timestamp, 'UTC')) AS ten_minutes,
    TraceId AS trace_id,
    toTimeZone(min(Timestamp), 'UTC') AS first_at,
    toTimeZone(max(Timestamp), 'UTC') AS last_at,
    max(IngestedAt) AS ingested_at
FROM otel_logs
WHERE TraceId != '' AND SpanEventName != ''
GROUP BY ten_minutes, trace_id;

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
    marks Array(String),
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
    e.fault_owner AS fault_owner, e.marks AS marks
FROM episodes AS e
LEFT JOIN (
    SELECT episode_id, revision, toUInt32(uniqExactIf(step, is_trainable)) AS trainable
    FROM (
        SELECT episode_id, revision, step, is_trainable FROM transition_rows
        WHERE episode_id IN (SELECT episode_id FROM episodes)
        UNION ALL
        SELECT episode_id, revision, step, is_trainable FROM legacy_transitions
        WHERE episode_id IN (SELECT episode_id FROM episodes)
    )
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


-- 4. Training jobs.

CREATE TABLE IF NOT EXISTS training_metrics (
    job_id String,
    step UInt32,
    name LowCardinality(String),
    value Float64,
    recorded_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(recorded_at)
ORDER BY (job_id, name, step);

-- What each job has recorded, by metric; a metric recorded again changes nothing.
CREATE TABLE IF NOT EXISTS metric_summaries (
    job_id String,
    name LowCardinality(String),
    last_step SimpleAggregateFunction(max, UInt32),
    last_recorded_at SimpleAggregateFunction(max, DateTime64(6, 'UTC'))
) ENGINE = AggregatingMergeTree
ORDER BY (job_id, name);

CREATE MATERIALIZED VIEW IF NOT EXISTS metric_summaries_mv TO metric_summaries AS
SELECT job_id, name, max(step) AS last_step, max(recorded_at) AS last_recorded_at
FROM training_metrics
GROUP BY job_id, name;

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
    prompt_tokens UInt32 COMMENT 'length of the row''s prompt',
    response_tokens UInt32 COMMENT 'length of the row''s response, tool results included',
    distinct_2 Nullable(Float64) COMMENT 'share of distinct ones among the bigrams of the trained tokens; null with fewer than two',
    base_loss Nullable(Float64) COMMENT 'mean negative log-probability of a trained token under the base, nats; null where no coreset needed it',
    pass_rate Nullable(Float64) COMMENT 'share of the attempts of the row''s group that succeed; null when not known',
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


-- 5. Task runs and evaluations: how well a policy version does on a set of tasks, and what that was computed from.

-- Attempts of the task runner, one row for each run, task and attempt. A row is written when the attempt has ended, and
-- again when it is graded again; the newest revision counts.
CREATE TABLE IF NOT EXISTS attempts (
    run_id String,
    task_id String,
    task_digest String COMMENT 'SHA-256 of the canonical JSON of the task''s fields without its id, hex',
    attempt UInt32 COMMENT 'number of the attempt at the task in the run, from 1',
    model String COMMENT 'name@version that the gateway served, or the name at another URL',
    episode_id String COMMENT 'spanloop.episode.id of the attempt''s spans; empty once it is forgotten',
    trace_id String COMMENT 'of the attempt''s root span, where a Python callable was run; empty for a command, which may have several',
    state LowCardinality(String) COMMENT 'finished, crashed (another exit status than 0, or an exception) or timed_out',
    exit_code Nullable(Int32) COMMENT 'of a command; negative: the signal that ended it',
    is_success Nullable(Bool) COMMENT 'the grader''s verdict; null where nothing was graded, which counts as a failure in an evaluation',
    reward Nullable(Float64) COMMENT 'the grader''s score; null as above',
    grader LowCardinality(String) COMMENT 'name of the grader; empty without one',
    grader_version LowCardinality(String),
    evidence String COMMENT 'JSON object of the verdict: what was compared',
    seed UInt64 COMMENT 'that the attempt was given',
    started_at DateTime64(6, 'UTC'),
    duration_ms UInt64,
    error String COMMENT 'why it crashed, or why it could not be graded; the last lines of stderr',
    interrupted_episode_ids Array(String) COMMENT 'episodes of earlier starts of this attempt that ended with the runner or with the gateway; they count for nothing',
    revision UInt64 COMMENT 'microseconds since the epoch when the row was made',
    INDEX episode episode_id TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(revision)
ORDER BY (run_id, task_id, attempt);

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
    states Map(LowCardinality(String), UInt32) COMMENT 'attempts that count, by state',
    training_tasks UInt32 COMMENT 'tasks that count although the version or an ancestor of it was trained on them',
    level Float64 COMMENT 'of the intervals: 0.95',
    resamples UInt32 COMMENT 'of the bootstrap over tasks',
    seed UInt32 COMMENT 'of the bootstrap',
    parameters String COMMENT 'JSON: what was asked for',
    converter_version LowCardinality(String) COMMENT 'that made the episodes; several are joined by a comma'
) ENGINE = ReplacingMergeTree(revision)
ORDER BY evaluation_id;

-- The episodes of an evaluation, those that do not count too. Kept per revision, as transitions are. In rows of earlier
-- evaluations run_id to step_efficiency are empty; there, attempts without a score were left out.
CREATE TABLE IF NOT EXISTS evaluation_episodes (
    evaluation_id String,
    evaluation_revision UInt64,
    episode_id String,
    revision UInt64 COMMENT 'of the episode',
    task_id String COMMENT 'the episode''s task id, else its group id',
    run_id String COMMENT 'of the task runner; empty for an episode that it did not run',
    attempt UInt32 COMMENT 'number of the attempt at the task in the run',
    state LowCardinality(String) COMMENT 'scored, or why it counts as a failure: crashed, timed_out, unscored, incomplete',
    left_out LowCardinality(String) COMMENT 'why it does not count; empty when it does',
    is_training_task Bool COMMENT 'the version or an ancestor of it was trained on the task',
    is_success Bool,
    reward Nullable(Float64),
    latency_s Nullable(Float64) COMMENT 'from the attempt''s begin to its end',
    tokens Nullable(Float64) COMMENT 'prompt and completion tokens; null without an episode',
    steps Nullable(Float64) COMMENT 'model calls that acted; null without an episode',
    tool_selection Nullable(Float64) COMMENT 'calls of the tools of the reference calls, by the larger number of both; null without reference calls',
    plan_success Nullable(Float64) COMMENT '1: it made all reference calls in their order; null as above',
    step_efficiency Nullable(Float64) COMMENT 'reference calls by the larger number of both where it succeeded, else 0; null as above',
    error_class LowCardinality(String) COMMENT 'of the failure that decided the episode; empty without one',
    error_classes Array(LowCardinality(String)) COMMENT 'of all failures that it did not recover from, each once',
    tool_calls Map(LowCardinality(String), UInt32) COMMENT 'tool name to how often it was called',
    failed_tool_calls Map(LowCardinality(String), UInt32) COMMENT 'tool name to how many of its calls failed'
) ENGINE = ReplacingMergeTree
ORDER BY (evaluation_id, evaluation_revision, episode_id);

-- Means over tasks with their intervals, inserted before the evaluation that they belong to.
CREATE TABLE IF NOT EXISTS evaluation_figures (
    evaluation_id String,
    evaluation_revision UInt64,
    position UInt32 COMMENT 'of the figure in lists',
    figure LowCardinality(String) COMMENT 'a metric, pass@k, or error: and a failure class',
    value Float64,
    low Float64,
    high Float64,
    tasks UInt32 COMMENT 'that have the figure'
) ENGINE = ReplacingMergeTree
ORDER BY (evaluation_id, evaluation_revision, figure);


-- 6. Canaries.

-- Calls of the sessions that a canary compares, one row each.
CREATE TABLE IF NOT EXISTS canary_calls (
    canary_id String,
    call_id String,
    session String COMMENT 'pseudonym of the session, which only the running canary can compute',
    arm LowCardinality(String) COMMENT 'candidate or champion: the version that the session belongs to',
    policy_version LowCardinality(String) COMMENT 'the version that answered, name@version; empty when none did',
    response_id String,
    trace_id String COMMENT 'from the caller''s traceparent; empty without one',
    status UInt16 COMMENT 'of the HTTP response; 499: the caller went away',
    error String COMMENT 'what failed in the engine of the arm, also when the champion answered instead; empty without',
    prompt_tokens UInt32,
    response_tokens UInt32,
    started_at DateTime64(9, 'UTC'),
    duration_ns UInt64,
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY (canary_id, session, call_id)
SETTINGS non_replicated_deduplication_window = 1000;

-- Sessions that a look at a canary has counted. They keep their place and their values, because an e-value that was seen must
-- not change afterwards.
CREATE TABLE IF NOT EXISTS canary_sessions (
    canary_id String,
    position UInt64 COMMENT 'of the session in the test, from 0',
    session String,
    arm LowCardinality(String),
    figures Map(LowCardinality(String), Float64) COMMENT 'metric to value; metrics that the session does not have are missing',
    owners Array(LowCardinality(String)) COMMENT 'who is at fault for its unrecovered failures',
    started_at DateTime64(9, 'UTC'),
    counted_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(counted_at)
ORDER BY (canary_id, position)
SETTINGS non_replicated_deduplication_window = 1000;

-- What a shadow candidate answered to a copy of a call, beside the champion's answer. Nothing trains on this table, and no caller
-- gets its answers.
CREATE TABLE IF NOT EXISTS shadow_answers (
    canary_id String,
    response_id String COMMENT 'of the champion''s answer',
    trace_id String COMMENT 'from the caller''s traceparent; empty without one',
    candidate LowCardinality(String) COMMENT 'name@version',
    champion LowCardinality(String) COMMENT 'name@version that answered the caller',
    answer String COMMENT 'JSON: text and tool calls of the candidate; empty with an error' CODEC(ZSTD(1)),
    champion_answer String COMMENT 'JSON, as above' CODEC(ZSTD(1)),
    is_valid Bool COMMENT 'the candidate''s tool calls name tools of the request, with arguments that their schemas allow',
    champion_is_valid Bool,
    agreement LowCardinality(String) COMMENT 'same, same_tools (with other arguments) or different; empty with an error',
    latency_s Float64,
    champion_latency_s Float64,
    tokens UInt32 COMMENT 'of the response',
    champion_tokens UInt32,
    error String COMMENT 'why the candidate did not answer; empty when it did',
    started_at DateTime64(9, 'UTC'),
    ingested_at DateTime64(6, 'UTC') DEFAULT now64(6, 'UTC')
) ENGINE = ReplacingMergeTree(ingested_at)
ORDER BY (canary_id, response_id)
SETTINGS non_replicated_deduplication_window = 1000;
