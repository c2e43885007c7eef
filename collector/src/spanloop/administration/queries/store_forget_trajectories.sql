-- Erase the rows of the given episodes from trajectories.
ALTER TABLE trajectories DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
