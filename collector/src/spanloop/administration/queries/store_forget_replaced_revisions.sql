-- Erase the rows of the given episodes from replaced_revisions.
ALTER TABLE replaced_revisions DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
