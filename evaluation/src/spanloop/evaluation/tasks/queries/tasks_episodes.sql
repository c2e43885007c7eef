-- How the given episode revisions (two parallel lists) began and ended, as canonical message JSON, with their tool calls in order.
-- Joins: global.
WITH pinned AS (
    SELECT pair.1 AS episode_id, pair.2 AS revision
    FROM (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})) AS pair)
)
SELECT
    t.episode_id AS episode_id,
    any(e.task_id) AS task_id,
    any(e.outcome) AS outcome,
    argMin(t.state, t.step) AS state,
    argMax(t.action, t.step) AS action,
    arrayFlatten(arrayMap(pair -> pair.2, arraySort(pair -> pair.1, groupArray((t.step, arrayMap(
        part -> concat('{"name":', JSONExtractRaw(part, 'name'), ',"arguments":', JSONExtractRaw(part, 'arguments'), '}'),
        arrayFilter(part -> JSONExtractString(part, 'type') = 'tool_call', JSONExtractArrayRaw(t.action, 'parts'))
    )))))) AS calls
FROM (
    SELECT * FROM transitions
    WHERE episode_id IN ({episode_ids:Array(String)})
        AND (episode_id, revision) IN (SELECT episode_id, revision FROM pinned)
) AS t
INNER JOIN (
    SELECT episode_id, revision, task_id, outcome FROM episodes FINAL PREWHERE episode_id IN ({episode_ids:Array(String)})
) AS e ON e.episode_id = t.episode_id AND e.revision = t.revision
GROUP BY t.episode_id
ORDER BY t.episode_id
