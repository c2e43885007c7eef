-- Names and types of the columns of a table of this database; no row when there is no such table.
SELECT name, type
FROM system.columns
WHERE database = currentDatabase() AND table = {table:String}
ORDER BY position
