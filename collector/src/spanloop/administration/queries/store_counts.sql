-- Number of rows and bytes on disk of each table of the store.
-- System tables: of all shards.
SELECT
    replaceRegexpOne(name, '_shard$', '') AS table_name,
    sum(assumeNotNull(total_rows)) AS row_count,
    sum(assumeNotNull(total_bytes)) AS size_bytes
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND table_name != 'schema_migrations'
GROUP BY table_name
ORDER BY table_name
