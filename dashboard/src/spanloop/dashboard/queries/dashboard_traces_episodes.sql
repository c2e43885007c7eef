-- The current episode of each trace, if it is converted and started in a range of time.
SELECT trace, any(episode_id) AS episode_id, any(revision) AS revision
FROM (
    SELECT arrayJoin(trace_ids) AS trace, episode_id, revision
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND started_at >= toDateTime64({from_s:Int64}, 9, 'UTC') AND started_at < toDateTime64({until_s:Int64}, 9, 'UTC')
        AND hasAny(trace_ids, {trace_ids:Array(String)})
)
WHERE has({trace_ids:Array(String)}, trace)
GROUP BY trace
