-- Names and types of the columns of a table in this database; no row when the table does not exist.
SELECT name, type
FROM system.columns
WHERE database = currentDatabase() AND table = {table:String}
ORDER BY position
