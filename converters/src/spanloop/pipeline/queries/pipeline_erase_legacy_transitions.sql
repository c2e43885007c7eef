-- Erase the given revisions (two parallel lists) from legacy_transitions; the files shrink with the next merge.
DELETE FROM legacy_transitions
WHERE episode_id IN {episode_ids:Array(String)}
    AND (episode_id, revision) IN arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})
