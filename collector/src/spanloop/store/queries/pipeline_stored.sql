-- The newest revision, tombstones included, of episodes by id or by a trace of theirs.
-- hasAny compares every pair, which takes seconds for thousands of traces: it only asks the index, and a set does the rest.
SELECT
    episode_id,
    revision,
    is_deleted,
    converter_version,
    span_count,
    trace_ids,
    outcome,
    reward
FROM episodes FINAL
PREWHERE episode_id IN (
        SELECT arrayJoin({episode_ids:Array(String)})
        UNION ALL
        SELECT episode_id
        FROM episodes
        WHERE indexHint(hasAny(trace_ids, {trace_ids:Array(String)}))
            AND arrayExists(trace_id -> trace_id IN {trace_ids:Array(String)}, trace_ids)
    )
WHERE (episode_id IN {episode_ids:Array(String)}
    OR arrayExists(trace_id -> trace_id IN {trace_ids:Array(String)}, trace_ids))
ORDER BY episode_id
