-- The materialized views of a table: the table that each fills, the columns that it fills, and its SELECT.
SELECT
    view.name AS name,
    extract(view.create_table_query, ' TO \\S+?\\.`?(\\w+)') AS target,
    (
        SELECT groupArray(name)
        FROM (SELECT table, name FROM system.columns WHERE database = currentDatabase() ORDER BY position)
        WHERE table = view.name
    ) AS columns,
    view.as_select AS as_select
FROM system.tables AS view
WHERE view.database = currentDatabase()
    AND view.name IN (
        SELECT arrayJoin(dependencies_table) FROM system.tables
        WHERE database = currentDatabase() AND name = {table:String}
    )
ORDER BY name
