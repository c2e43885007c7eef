-- Tables to copy: tables that views fill are last, and tables that those views join with come before them.
SELECT name AS table_name, assumeNotNull(total_rows) AS row_count
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_migrations'
ORDER BY name LIKE '%summaries', name IN ('scores', 'episodes'), name
