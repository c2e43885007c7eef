-- Share of the graded attempts of a version that succeeded, by task; an attempt that crashed or ran out of time is a failure.
SELECT
    task_id,
    avg(coalesce(is_success, false)) AS pass_rate
FROM attempts FINAL
WHERE model = {model:String}
    AND (is_success IS NOT NULL OR state != 'finished')
GROUP BY task_id
