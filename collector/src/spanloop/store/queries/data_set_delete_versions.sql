-- Delete the given versions of a data set; their episodes were deleted before.
ALTER TABLE data_sets DELETE WHERE data_set_id IN {data_set_ids:Array(String)}
SETTINGS mutations_sync = 2
