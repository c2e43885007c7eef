-- Erase the rows of the given episodes from training_samples.
ALTER TABLE training_samples DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
