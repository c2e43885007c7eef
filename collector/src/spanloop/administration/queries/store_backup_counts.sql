-- Rows of every table in the embedded server's database.
SELECT name AS table_name, assumeNotNull(total_rows) AS row_count
FROM system.tables
WHERE database = 'spanloop' AND engine LIKE '%MergeTree'
ORDER BY table_name
