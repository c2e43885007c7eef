-- Those of some rows of a part that have one of these hashes.
SELECT *
FROM {table_name:Identifier}
WHERE _part = {part:String} AND _part_offset >= {first:UInt64} AND _part_offset < {end:UInt64}
    AND cityHash64(tuple(*)) IN {row_hashes:Array(UInt64)}
