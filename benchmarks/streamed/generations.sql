-- What the gateway captured of the calls of every tenth trace: each prompt goes on where the one before ended.
INSERT INTO generations (
    generation_id, response_id, choice_index, trace_id, parent_span_id, model, policy_version, prompt_token_ids,
    response_token_ids, logprobs, finish_reason, is_complete, sampling, started_at, duration_ns
)
WITH
    {first:UInt64} + 10 * intDiv(number, 5) AS trace,
    number % 5 AS turn,
    trace * 10 + 1 + 2 * turn AS span,
    concat('r-', toString(span)) AS response
SELECT
    concat(response, '/0'), response, 0, lower(leftPad(hex(sipHash128('trace', trace)), 32, '0')), lower(leftPad(hex(sipHash64('span', span)), 16, '0')), 'tiny', 'tiny@v1',
    arrayMap(x -> toUInt32(x), range(100 + 40 * turn)), arrayMap(x -> toUInt32(100 + 40 * turn + x), range(20)), arrayMap(x -> toFloat32(-0.1), range(20)),
    'stop', true, map('temperature', '1'),
    fromUnixTimestamp64Nano({base_ns:Int64} + toInt64(trace * 50000000), 'UTC'), 300000000
FROM numbers(intDiv({traces:UInt64} + 9, 10) * 5)
