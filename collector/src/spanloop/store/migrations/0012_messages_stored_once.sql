-- Messages are stored once for each episode revision; transition_rows refer to them by number, and the view transitions
-- has the columns that the table of this name had. The rows of that table are moved in the background
-- (spanloop.pipeline.legacy_transitions); until then the view takes them from legacy_transitions.
RENAME TABLE transitions TO legacy_transitions;

-- Spelled out, because a server that has lost the definition of a table creates it anew, and 0001 does so under the old name.
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

-- A filter on episode_id and revision reaches every table below. A revision is taken from legacy_transitions until all of its
-- rows are moved.
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

-- As in 0006, from the tables below the view.
ALTER TABLE episode_summaries_mv MODIFY QUERY
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
    FROM (
        SELECT episode_id, revision, step, is_trainable FROM transition_rows
        WHERE episode_id IN (SELECT episode_id FROM episodes)
        UNION ALL
        SELECT episode_id, revision, step, is_trainable FROM legacy_transitions
        WHERE episode_id IN (SELECT episode_id FROM episodes)
    )
    GROUP BY episode_id, revision
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision;
