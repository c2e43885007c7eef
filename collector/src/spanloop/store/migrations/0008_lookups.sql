-- So that a lookup costs the same however much there is: where a trace's log records lie in time, what a job has recorded, and
-- indexes that tell ids and arrivals apart in more rows.

-- One row for each trace and ten minutes with records that tell of its spans; read with min and max.
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
SETTINGS index_granularity = 1024, non_replicated_deduplication_window = 1000;

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

INSERT INTO log_summaries
SELECT
    toStartOfTenMinutes(toDateTime(Timestamp, 'UTC')) AS ten_minutes,
    TraceId AS trace_id,
    toTimeZone(min(Timestamp), 'UTC') AS first_at,
    toTimeZone(max(Timestamp), 'UTC') AS last_at,
    max(IngestedAt) AS ingested_at
FROM otel_logs
WHERE TraceId != '' AND SpanEventName != ''
GROUP BY ten_minutes, trace_id
SETTINGS max_bytes_before_external_group_by = 200000000, insert_deduplicate = 0;

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

INSERT INTO metric_summaries
SELECT job_id, name, max(step) AS last_step, max(recorded_at) AS last_recorded_at
FROM training_metrics
GROUP BY job_id, name;

-- What has just arrived lies in new parts, and among traces near in time.
ALTER TABLE trace_summaries ADD INDEX IF NOT EXISTS idx_ingested_at ingested_at TYPE minmax GRANULARITY 1;

ALTER TABLE trace_summaries MATERIALIZE INDEX IF EXISTS idx_ingested_at;

ALTER TABLE scores ADD INDEX IF NOT EXISTS idx_ingested_at ingested_at TYPE minmax GRANULARITY 1;

ALTER TABLE scores MATERIALIZE INDEX IF EXISTS idx_ingested_at;

-- Captures are looked for by many ids at once: of a hundred, a filter that errs for one in a hundred finds most blocks.
ALTER TABLE generations ADD INDEX IF NOT EXISTS idx_response_ids response_id TYPE bloom_filter(0.0001) GRANULARITY 1;

ALTER TABLE generations ADD INDEX IF NOT EXISTS idx_trace_ids trace_id TYPE bloom_filter(0.0001) GRANULARITY 1;

ALTER TABLE generations MATERIALIZE INDEX IF EXISTS idx_response_ids;

ALTER TABLE generations MATERIALIZE INDEX IF EXISTS idx_trace_ids;

ALTER TABLE generations DROP INDEX IF EXISTS idx_response_id;

ALTER TABLE generations DROP INDEX IF EXISTS idx_trace_id;
