-- The materialized views of a table: the table that each fills, the columns that it fills, and its SELECT.
SELECT
    view.name AS name,
    replaceRegexpOne(extract(view.create_table_query, ' TO \\S+?\\.`?(\\w+)'), '_shard$', '') AS target,
    (
        SELECT groupArray(name)
        FROM (SELECT table, name FROM system.columns WHERE database = currentDatabase() ORDER BY position)
        WHERE table = view.name
    ) AS columns,
    replaceRegexpAll(view.as_select, '\\b(\\w+)_shard\\b', '\\1') AS as_select
FROM system.tables AS view
WHERE view.database = currentDatabase()
    AND view.name IN (
        SELECT arrayJoin(dependencies_table) FROM system.tables
        WHERE database = currentDatabase() AND name IN ({table:String}, concat({table:String}, '_shard'))
    )
ORDER BY name
