-- For how many days the rows of each table that a retention is set for are kept after they came in; no row: for ever.
SELECT name AS table_name, toUInt32OrZero(extract(engine_full, 'TTL .*86400 \\* toUInt64\\(_CAST\\((\\d+)')) AS days
FROM system.tables
WHERE database = currentDatabase() AND name IN ('otel_traces', 'otel_logs', 'log_summaries', 'trace_summaries') AND days > 0
ORDER BY table_name
