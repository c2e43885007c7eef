-- Erase the rows of the given episodes from failure_summaries.
ALTER TABLE failure_summaries DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
