-- Two hundred episodes for each evaluation.
INSERT INTO evaluation_episodes (
    evaluation_id, evaluation_revision, episode_id, revision, task_id, left_out, is_success, reward, error_class,
    error_classes, tool_calls, failed_tool_calls
)
WITH intDiv(number, 200) * 10000 + (number % 200) * 10 AS e
SELECT
    concat('test:m@v', toString(1 + intDiv(number, 200))), 1, lower(hex(sipHash128('trace', e))),
    intDiv({base_ns:Int64} + e * {step_ns:Int64}, 1000) + 9000000, concat('test-', toString(e % 2000)), '', e % 20 = 0,
    toFloat64(e % 2), '', [], map('tool_1', 4), map()
FROM numbers(intDiv({first:UInt64}, 10000) * 200, intDiv({episodes:UInt64} + 9999, 10000) * 200)
