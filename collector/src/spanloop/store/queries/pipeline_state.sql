-- The pipeline's read position as one JSON value; no row before the first run.
SELECT value FROM pipeline_state FINAL WHERE name = {name:String}
