-- Parts of a table in the order of their partitions.
SELECT partition_id, name AS part, rows AS row_count
FROM system.parts
WHERE database = currentDatabase() AND table = {table_name:String} AND active
ORDER BY partition_id, part
