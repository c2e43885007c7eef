-- The step of a current episode whose model call a span is; no row for other spans and before the conversion.
-- Joins: local by episode.
SELECT episode_id, step
FROM transition_rows
WHERE (episode_id, revision) IN (
        SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0 AND has(trace_ids, {trace_id:String})
    )
    AND trace_id = {trace_id:String} AND span_id = {span_id:String}
LIMIT 1
