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
