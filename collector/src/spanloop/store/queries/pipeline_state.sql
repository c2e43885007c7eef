-- How far the pipeline has read: one JSON value, or no row before the first run.
SELECT value FROM pipeline_state FINAL WHERE name = {name:String}
