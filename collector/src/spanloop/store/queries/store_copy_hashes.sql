-- Hashes of the different rows of a partition, those that a newer row replaces left out.
SELECT DISTINCT cityHash64(tuple(*)) AS row_hash
FROM {table_name:Identifier}
WHERE _partition_id = {partition_id:String}
SETTINGS final = 1
