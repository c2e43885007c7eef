-- Erase the rows of the given episodes from transition_rows.
ALTER TABLE transition_rows DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
