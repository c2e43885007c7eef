-- Erase the rows of the given episodes from pinned_revisions.
ALTER TABLE pinned_revisions DELETE WHERE episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
