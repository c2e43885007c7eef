-- Parts of a table in the order of their partitions; of parts with one name, on several shards, the longest.
-- System tables: of all shards.
SELECT partition_id, name AS part, max(rows) AS row_count
FROM system.parts
WHERE database = currentDatabase() AND table IN ({table_name:String}, concat({table_name:String}, '_shard')) AND active
GROUP BY partition_id, part
ORDER BY partition_id, part
