-- Erase the rows of the given episodes from legacy_transitions.
ALTER TABLE legacy_transitions DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
