-- All transitions of the given episode revisions (two parallel lists), with each episode's outcome.
WITH pinned AS (
    SELECT pair.1 AS episode_id, pair.2 AS revision
    FROM (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})) AS pair)
)
SELECT t.* EXCEPT converted_at, e.outcome AS outcome
FROM (
    SELECT * FROM transitions
    WHERE episode_id IN ({episode_ids:Array(String)})
        AND (episode_id, revision) IN (SELECT episode_id, revision FROM pinned)
) AS t
INNER JOIN (
    SELECT episode_id, revision, outcome FROM episodes FINAL PREWHERE episode_id IN ({episode_ids:Array(String)})
) AS e ON e.episode_id = t.episode_id AND e.revision = t.revision
ORDER BY t.group_id, t.episode_id, t.step
