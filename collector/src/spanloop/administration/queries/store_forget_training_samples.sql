-- Erase what identifies the given episodes from training_samples; the numbers stay, without which a step's sums are wrong.
ALTER TABLE training_samples
UPDATE episode_id = '', revision = 0, trajectory_id = '', row_number = 0, trained_steps = [], group_id = ''
WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
