-- Erase the rows of the given episodes from step_summaries.
ALTER TABLE step_summaries DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
