-- Number of rows and bytes on disk of each table of the store.
SELECT
    name AS table_name,
    assumeNotNull(total_rows) AS row_count,
    assumeNotNull(total_bytes) AS size_bytes
FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND name != 'schema_migrations'
ORDER BY table_name
