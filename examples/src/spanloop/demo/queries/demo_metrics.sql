-- The metrics of one job.
SELECT step, name, value FROM training_metrics FINAL WHERE job_id = {job_id:String} ORDER BY step, name
