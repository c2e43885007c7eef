-- All metrics of one job: step, verl's name and value.
SELECT step, name, value
FROM training_metrics FINAL
WHERE job_id = {job_id:String}
ORDER BY step, name
