-- Erase the rows of the given episodes from evaluation_episodes.
ALTER TABLE evaluation_episodes DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
