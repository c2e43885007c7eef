-- The rows with one of these hashes in a range of rows of a part.
SELECT *
FROM {table_name:Identifier}
WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64}
    AND cityHash64(tuple(*)) IN {row_hashes:Array(UInt64)}
