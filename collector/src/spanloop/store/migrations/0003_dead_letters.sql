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
