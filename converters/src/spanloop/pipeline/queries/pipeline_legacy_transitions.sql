-- Legacy transitions of the given revisions (two parallel lists), in a range of steps.
SELECT * FROM legacy_transitions FINAL
PREWHERE episode_id IN {episode_ids:Array(String)}
    AND (episode_id, revision) IN arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})
    AND step >= {first_step:UInt32} AND step < {end_step:UInt32}
ORDER BY episode_id, revision, step
