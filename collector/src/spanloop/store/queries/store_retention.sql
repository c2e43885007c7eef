-- Retention in days after arrival by table; no row for tables without one.
SELECT
    replaceRegexpOne(name, '_shard$', '') AS table_name,
    toUInt32OrZero(extract(engine_full, 'TTL .*86400 \\* toUInt64\\(_CAST\\((\\d+)')) AS days
FROM system.tables
WHERE database = currentDatabase() AND table_name IN ('otel_traces', 'otel_logs', 'log_summaries', 'trace_summaries') AND days > 0
ORDER BY table_name
