-- Erase the rows of the given episodes from episode_summaries.
ALTER TABLE episode_summaries DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
