-- Erase the rows of the given episodes from episode_messages.
ALTER TABLE episode_messages DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
