-- What the gateway captured of each model call.
INSERT INTO generations (
    generation_id, response_id, choice_index, trace_id, parent_span_id, model, policy_version, prompt_token_ids,
    response_token_ids, logprobs, finish_reason, is_complete, sampling, started_at, duration_ns, ingested_at
)
WITH
    intDiv(number, 4) AS e,
    e * 10 + 1 + 2 * (number % 4) AS span,
    concat('chatcmpl-', lower(hex(sipHash128('response', span)))) AS response,
    fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + e * {step_ns:Int64} + (number % 4) * 800000000), 'UTC') AS started
SELECT
    concat(response, '/0'), response, 0, lower(hex(sipHash128('trace', e))), lower(hex(sipHash64('span', span))), 'm',
    concat('m@v', toString(1 + intDiv(e, 10000))), range(20), range(10), arrayMap(x -> toFloat32(-0.1 * x), range(10)),
    'stop', true, map('temperature', '1'), started, 300000000, toDateTime64(started, 6, 'UTC') + toIntervalSecond(5)
FROM numbers({first:UInt64} * 4, {episodes:UInt64} * 4)
