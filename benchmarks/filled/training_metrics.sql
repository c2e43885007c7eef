-- A job of fifty steps with forty metrics for each policy version.
INSERT INTO training_metrics (job_id, step, name, value)
SELECT
    concat('job-', toString(intDiv(number, 2000))), intDiv(number % 2000, 40),
    if(number % 40 = 0, 'batch_reward', concat('actor/metric_', toString(number % 40))), number % 7
FROM numbers(intDiv({first:UInt64}, 10000) * 2000, intDiv({episodes:UInt64} + 9999, 10000) * 2000)
