-- Tables to copy: tables that views fill are last, and tables that those views join with come before them.
-- System tables: of all shards.
SELECT replaceRegexpOne(name, '_shard$', '') AS table_name, sum(assumeNotNull(total_rows)) AS row_count
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND table_name != 'schema_migrations'
GROUP BY table_name
ORDER BY table_name LIKE '%summaries', table_name IN ('scores', 'episodes'), table_name
