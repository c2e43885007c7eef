-- Hashes of some rows of a part, in its order.
SELECT cityHash64(tuple(*)) AS row_hash
FROM {table_name:Identifier}
WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64}
