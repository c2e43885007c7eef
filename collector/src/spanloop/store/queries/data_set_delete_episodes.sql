-- Delete the episode revisions of the given versions of a data set.
ALTER TABLE data_set_episodes DELETE WHERE data_set_id IN {data_set_ids:Array(String)}
SETTINGS mutations_sync = 2
