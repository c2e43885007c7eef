-- How many of the episodes that ended at a time or later have a failure of a class, recovered ones included. The rest is
-- as in alert_episodes.
-- Joins: local by episode.
SELECT
    count() AS episodes,
    countIf((episode_id, revision) IN (
        SELECT episode_id, revision
        FROM failure_summaries
        WHERE error_class = {failure_class:String} AND occurred_at >= {started_since:DateTime64(9, 'UTC')}
    )) AS failed,
    min(started_at) AS first_started_at
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND ({agent:String} = '' OR if(agent_name = '', service_name, agent_name) = {agent:String})
    AND started_at >= {started_since:DateTime64(9, 'UTC')}
    AND started_at + toIntervalNanosecond(duration_ns) >= {since:DateTime64(9, 'UTC')}
