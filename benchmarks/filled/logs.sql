-- A reward for each episode, which a view makes a score of.
INSERT INTO otel_logs (Timestamp, TraceId, SpanId, ServiceName, Body, LogAttributes, EventName, IngestedAt)
WITH fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + number * {step_ns:Int64} + 4000000000)) AS told
SELECT
    told, lower(hex(sipHash128('trace', number))), lower(hex(sipHash64('span', number * 10))),
    concat('service-', toString(number % 4)), '',
    map('gen_ai.evaluation.name', 'reward', 'gen_ai.evaluation.score.value', toString(sipHash64(number) % 2)),
    'gen_ai.evaluation.result', toDateTime64(told, 6, 'UTC') + toIntervalSecond(5)
FROM numbers({first:UInt64}, {episodes:UInt64})
