-- Tables whose rows a copy takes over, those that views fill last, and before them those that views join with.
SELECT name AS table_name, assumeNotNull(total_rows) AS row_count
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_migrations'
ORDER BY name LIKE '%summaries', name IN ('scores', 'episodes'), name
