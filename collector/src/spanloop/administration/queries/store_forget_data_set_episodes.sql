-- Erase the rows of the given episodes from data_set_episodes.
ALTER TABLE data_set_episodes DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
