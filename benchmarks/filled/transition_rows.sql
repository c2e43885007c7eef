-- Four steps for each episode; each saw one message.
INSERT INTO transition_rows (
    transition_id, episode_id, revision, step, task_id, group_id, agent_name, trace_id, span_id, response_id, model,
    policy_version, state, tools, action, tool_results, next_state, reward, reward_breakdown, is_terminated, is_truncated,
    finish_reason, sampling, token_source, capture_join, prompt_token_ids, response_token_ids, logprobs, is_trainable,
    untrainable_reason, untrainable_detail, tool_error_count, error_class, fault_owner, input_tokens, output_tokens,
    started_at, duration_ns, prompt_step, prompt_length, cached_tokens, first_token_ns, result_tools, result_durations_ns
)
WITH
    intDiv(number, 4) AS e,
    number % 4 AS k,
    e * 10 + 1 + 2 * k AS span,
    lower(hex(sipHash128('trace', e))) AS trace,
    {base_ns:Int64} + e * {step_ns:Int64} AS at_ns,
    concat(if(e % 10 = 0, 'test-', 'train-'), toString(e % 2000)) AS task
SELECT
    concat(trace, '/', toString(k)), trace, intDiv(at_ns, 1000) + 9000000, k, task, task,
    concat('agent-', toString(e % 5)), trace, lower(hex(sipHash64('span', span))),
    concat('chatcmpl-', lower(hex(sipHash128('response', span)))), 'm', concat('m@v', toString(1 + intDiv(e, 10000))),
    [k, k + 1], '[]',
    '{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"tool_1","arguments":{}}]}',
    '[{"tool_call_id":"c","name":"tool_1","status":"ok","content":"1"}]', [0, 0], toFloat64(e % 2), map('reward', toFloat64(e % 2)),
    k = 3, false, 'stop', map('temperature', '1'), 'captured', 'response_id', range(20), range(10),
    arrayMap(x -> toFloat32(-0.1 * x), range(10)), k != 2, if(k = 2, 'no_tokens', ''), '', k = 1, '', '', 500, 50,
    fromUnixTimestamp64Nano(toInt64(at_ns + k * 800000000), 'UTC'), 300000000 + e % 97 * 1000000, k, 20,
    100, if(k = 0, 40000000 + e % 53 * 1000000, NULL), ['tool_1'], [20000000 + e % 31 * 1000000]
FROM numbers({first:UInt64} * 4, {episodes:UInt64} * 4)
