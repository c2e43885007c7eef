-- All transitions of the given episode revisions (two parallel lists), with each episode's outcome.
-- data_set_id: the outcomes are those of this version of a data set; empty for those of the current revisions.
-- fault_*: what failed at the step, parallel arrays. decided_by: who caused the failure that decided a failed episode.
-- Joins: global.
WITH pinned AS (
    SELECT pair.1 AS episode_id, pair.2 AS revision
    FROM (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})) AS pair)
)
SELECT
    t.*,
    f.fault_classes AS fault_classes,
    f.fault_owners AS fault_owners,
    f.fault_is_recovered AS fault_is_recovered
FROM (
    SELECT t.* EXCEPT converted_at, e.outcome AS outcome, e.decided_by AS decided_by
    FROM (
        SELECT * FROM transitions
        WHERE episode_id IN ({episode_ids:Array(String)})
            AND (episode_id, revision) IN (SELECT episode_id, revision FROM pinned)
    ) AS t
    INNER JOIN (
        SELECT episode_id, revision, outcome, if(outcome = 'failure', toString(fault_owner), '') AS decided_by
        FROM episodes FINAL
        PREWHERE episode_id IN ({episode_ids:Array(String)})
        WHERE {data_set_id:String} = ''
        UNION ALL
        SELECT episode_id, revision, outcome, if(outcome = 'failure', toString(fault_owner), '') AS decided_by
        FROM data_set_episodes FINAL
        PREWHERE data_set_id = {data_set_id:String} AND episode_id IN ({episode_ids:Array(String)})
    ) AS e ON e.episode_id = t.episode_id AND e.revision = t.revision
) AS t
LEFT JOIN (
    SELECT
        episode_id, revision, step,
        groupArray(toString(error_class)) AS fault_classes,
        groupArray(toString(fault_owner)) AS fault_owners,
        groupArray(toUInt8(is_recovered)) AS fault_is_recovered
    FROM failures FINAL
    WHERE episode_id IN ({episode_ids:Array(String)})
        AND (episode_id, revision) IN (SELECT episode_id, revision FROM pinned)
    GROUP BY episode_id, revision, step
) AS f ON f.episode_id = t.episode_id AND f.revision = t.revision AND f.step = t.step
ORDER BY t.group_id, t.episode_id, t.step
