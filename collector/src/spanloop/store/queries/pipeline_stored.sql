-- The newest revision, tombstones included, of episodes by id or by a trace of theirs.
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
        SELECT episode_id FROM episodes WHERE hasAny(trace_ids, {trace_ids:Array(String)})
    )
WHERE (episode_id IN {episode_ids:Array(String)} OR hasAny(trace_ids, {trace_ids:Array(String)}))
ORDER BY episode_id
