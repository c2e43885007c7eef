-- Hashes of a range of rows of a part, in order.
SELECT cityHash64(tuple(*)) AS row_hash
FROM {table_name:Identifier}
WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64}
