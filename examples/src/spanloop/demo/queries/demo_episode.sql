-- The steps of one current episode, for reading.
-- Joins: local by episode.
SELECT step, state, action, tool_results
FROM transitions
WHERE episode_id = {episode_id:String}
    AND (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
ORDER BY step
