-- The current episode of each trace, if it is converted.
SELECT trace, any(episode_id) AS episode_id, any(revision) AS revision
FROM (
    SELECT arrayJoin(trace_ids) AS trace, episode_id, revision
    FROM episodes FINAL
    WHERE is_deleted = 0 AND hasAny(trace_ids, {trace_ids:Array(String)})
)
WHERE has({trace_ids:Array(String)}, trace)
GROUP BY trace
