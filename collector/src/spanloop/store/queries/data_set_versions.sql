-- Versions of data sets, the newest first, with the episodes that are left of each; of one name, or of all with an empty one.
-- Joins: global.
SELECT
    d.data_set_id AS data_set_id, d.name AS name, d.version AS version, d.created_at AS created_at, d.created_by AS created_by,
    d.source AS source, d.comment AS comment, d.episodes AS stated_episodes, d.added AS added, mapKeys(d.rejected) AS reasons, mapValues(d.rejected) AS counts,
    e.episodes AS episodes
FROM (
    SELECT *
    FROM data_sets FINAL
    WHERE {name:String} = '' OR name = {name:String}
    ORDER BY created_at, data_set_id
    LIMIT 1 BY name, version
) AS d
LEFT JOIN (
    SELECT data_set_id, count() AS episodes
    FROM data_set_episodes FINAL
    WHERE {name:String} = '' OR data_set_id IN (SELECT data_set_id FROM data_sets WHERE name = {name:String})
    GROUP BY data_set_id
) AS e ON e.data_set_id = d.data_set_id
ORDER BY created_at DESC, name, version DESC
