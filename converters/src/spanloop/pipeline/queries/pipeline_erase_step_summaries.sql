-- Erase the given revisions (two parallel lists) from step_summaries; the files shrink with the next merge.
DELETE FROM step_summaries
WHERE episode_id IN {episode_ids:Array(String)}
    AND (episode_id, revision) IN arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})
