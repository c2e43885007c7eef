-- Erase what identifies the given episodes from attempts, and what was said; that the attempt was made, and its score, stay.
ALTER TABLE attempts
UPDATE
    episode_id = if(episode_id IN {episode_ids:Array(String)}, '', episode_id),
    trace_id = if(episode_id IN {episode_ids:Array(String)}, '', trace_id),
    evidence = if(episode_id IN {episode_ids:Array(String)}, '', evidence),
    error = if(episode_id IN {episode_ids:Array(String)}, '', error),
    interrupted_episode_ids = arrayFilter(id -> NOT has({episode_ids:Array(String)}, id), interrupted_episode_ids)
WHERE episode_id IN {episode_ids:Array(String)} OR hasAny(interrupted_episode_ids, {episode_ids:Array(String)})
SETTINGS mutations_sync = 2
