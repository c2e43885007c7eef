-- How many of the newest episodes of an agent have a failure of a class, recovered ones included. agent '' is every agent.
-- since: only episodes that started at this time or later. ended_before: and ended before, so that nothing is missing.
-- Joins: global.
WITH newest AS (
    SELECT episode_id, revision
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND ({agent:String} = '' OR agent_name = {agent:String})
        AND started_at >= {since:DateTime64(9, 'UTC')}
        AND started_at + toIntervalNanosecond(duration_ns) < {ended_before:DateTime64(9, 'UTC')}
    ORDER BY started_at DESC, episode_id
    LIMIT {episodes:UInt64}
)
SELECT
    count() AS episodes,
    countIf((episode_id, revision) IN (
        SELECT episode_id, revision
        FROM failures
        WHERE error_class = {failure_class:String} AND (episode_id, revision) IN (SELECT episode_id, revision FROM newest)
    )) AS failed
FROM newest
