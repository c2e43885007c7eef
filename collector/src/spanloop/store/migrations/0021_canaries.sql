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
