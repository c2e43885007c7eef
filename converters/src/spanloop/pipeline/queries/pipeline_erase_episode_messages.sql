-- Erase the given revisions (two parallel lists) from episode_messages; the files shrink with the next merge.
DELETE FROM episode_messages
WHERE episode_id IN {episode_ids:Array(String)}
    AND (episode_id, revision) IN arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})
