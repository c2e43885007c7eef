-- An evaluation for each policy version.
INSERT INTO evaluations (
    evaluation_id, revision, name, model, task_set, created_at, started_at, episodes, tasks, success, success_low,
    success_high, mean_reward, reward_low, reward_high, left_out, level, resamples, seed, parameters, converter_version
)
SELECT
    concat('test:m@v', toString(1 + number)), 1, 'test', concat('m@v', toString(1 + number)), 'test-', now64(6, 'UTC'),
    fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + number * 10000 * {step_ns:Int64}), 'UTC'), 200, 200, 0.5, 0.4, 0.6,
    0.5, 0.4, 0.6, map(), 0.95, 1000, 0, '{}', '0.1.0'
FROM numbers(intDiv({first:UInt64}, 10000), intDiv({episodes:UInt64} + 9999, 10000))
