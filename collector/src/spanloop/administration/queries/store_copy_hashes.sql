-- Hashes of the distinct rows of a partition, without rows that a newer row replaces.
SELECT DISTINCT cityHash64(tuple(*)) AS row_hash
FROM {table_name:Identifier}
WHERE _partition_id = {partition_id:String}
SETTINGS final = 1
