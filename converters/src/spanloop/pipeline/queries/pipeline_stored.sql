-- The newest revisions, including tombstones, of episodes by id or by one of their traces.
-- hasAny compares all pairs, which takes seconds for thousands of traces. Here it only queries the index (indexHint); a set does the exact comparison.
-- Joins: local by episode.
SELECT
    episode_id,
    revision,
    is_deleted,
    converter_version,
    span_count,
    trace_ids,
    outcome,
    reward,
    marks,
    judgements
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
