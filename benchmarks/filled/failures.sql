-- A failure for every fifth episode, of two hundred kinds.
INSERT INTO failures (
    failure_id, episode_id, revision, task_id, trace_id, span_id, step, agent_name, tool_name, model, policy_version,
    error_class, fault_owner, is_recovered, message, evidence, confidence, rule, fingerprint, occurred_at
)
WITH
    number * 5 AS e,
    lower(hex(sipHash128('trace', e))) AS trace,
    sipHash64('failure', e) % 200 AS kind
SELECT
    concat(trace, '/0'), trace, intDiv({base_ns:Int64} + e * {step_ns:Int64}, 1000) + 9000000,
    concat(if(e % 10 = 0, 'test-', 'train-'), toString(e % 2000)), trace, lower(hex(sipHash64('span', e * 10 + 2))), 1,
    concat('agent-', toString(e % 5)), concat('tool_', toString(kind % 12)), 'm', concat('m@v', toString(1 + intDiv(e, 10000))),
    concat('class_', toString(kind % 9)), if(kind % 3 = 0, 'policy', 'tool'), kind % 4 = 0,
    concat('The tool answered with an error: timed out after ', toString(kind), ' s'), '{"chain":[]}', 0.9, 'tool_error',
    concat('fingerprint-', toString(kind)), fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + e * {step_ns:Int64} + 800000000), 'UTC')
FROM numbers(intDiv({first:UInt64}, 5), intDiv({episodes:UInt64}, 5))
