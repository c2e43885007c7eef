-- The episodes.
INSERT INTO episodes (
    episode_id, revision, converter_version, episode_key, task_id, group_id, session_id, service_name, agent_name, model,
    policy_version, trace_ids, started_at, duration_ns, step_count, span_count, tool_call_count, tool_error_count,
    input_tokens, output_tokens, outcome, reward, reward_breakdown, is_terminated, is_truncated, error_class, fault_owner
)
WITH
    number AS e,
    lower(hex(sipHash128('trace', e))) AS trace,
    concat(if(e % 10 = 0, 'test-', 'train-'), toString(e % 2000)) AS task
SELECT
    trace, intDiv({base_ns:Int64} + e * {step_ns:Int64}, 1000) + 9000000, '0.1.0', '', task, task,
    concat('session-', toString(intDiv(e, 5))), concat('service-', toString(e % 4)), concat('agent-', toString(e % 5)), 'm',
    concat('m@v', toString(1 + intDiv(e, 10000))), [trace],
    fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + e * {step_ns:Int64}), 'UTC'), 4000000000, 4, 10, 5, 1, 2000, 200,
    if(e % 2 = 0, 'failure', 'success'), toFloat64(e % 2), map('reward', toFloat64(e % 2)), true, false,
    if(e % 5 = 0, concat('class_', toString(sipHash64('failure', e) % 200 % 9)), ''), ''
FROM numbers({first:UInt64}, {episodes:UInt64})
