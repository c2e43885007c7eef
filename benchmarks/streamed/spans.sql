-- Ten spans for each trace: an agent, five model calls that repeat their growing history, four tool calls.
INSERT INTO otel_traces (
    Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ScopeName, SpanAttributes, Duration, StatusCode
)
WITH
    intDiv(number, 10) AS trace,
    number % 10 AS place,
    place % 2 = 1 AS is_call,
    intDiv(place, 2) AS turn,
    sipHash64(number) AS chance,
    'The customer asks for a refund of an order that came late, and the policy allows it within thirty days. ' AS phrase,
    fromUnixTimestamp64Nano({base_ns:Int64} + toInt64(trace * 50000000 + place * 400000000)) AS started,
    arrayStringConcat(arrayMap(t -> concat(
        ',{"role":"assistant","parts":[{"type":"tool_call","id":"c', toString(trace), '-', toString(t),
        '","name":"search","arguments":{"query":"order ', toString(trace), '"}}]},{"role":"tool","parts":[{"type":"tool_call_response","id":"c',
        toString(trace), '-', toString(t), '","response":"', substring(phrase, 1 + t * 7, 80), '"}]}'
    ), range(turn)), '') AS history
SELECT
    started,
    lower(leftPad(hex(sipHash128('trace', trace)), 32, '0')),
    lower(leftPad(hex(sipHash64('span', number)), 16, '0')),
    if(place = 0, '', lower(leftPad(hex(sipHash64('span', trace * 10)), 16, '0'))),
    multiIf(place = 0, 'invoke_agent clerk', is_call, 'chat tiny', 'execute_tool search'),
    if(is_call, 'Client', 'Internal'),
    concat('service-', toString(trace % 3)),
    'benchmark',
    multiIf(
        place = 0, map(
            'gen_ai.operation.name', 'invoke_agent', 'gen_ai.agent.name', 'clerk',
            'spanloop.episode.id', concat('episode-', toString(trace)), 'spanloop.task.id', concat('task-', toString(trace % 5000))
        ),
        is_call, map(
            'gen_ai.operation.name', 'chat', 'gen_ai.request.model', 'tiny', 'gen_ai.response.model', 'tiny@v1',
            'gen_ai.response.id', concat('r-', toString(number)),
            'gen_ai.response.finish_reasons', if(turn < 4, '["tool_call"]', '["stop"]'),
            'gen_ai.usage.input_tokens', toString(100 + 40 * turn), 'gen_ai.usage.output_tokens', '20',
            'gen_ai.input.messages', concat(
                '[{"role":"system","parts":[{"type":"text","content":"', phrase, '"}]},{"role":"user","parts":[{"type":"text","content":"Refund order ',
                toString(trace), '"}]}', history, ']'
            ),
            'gen_ai.output.messages', if(
                turn < 4,
                concat('[{"role":"assistant","parts":[{"type":"tool_call","id":"c', toString(trace), '-', toString(turn), '","name":"search","arguments":{"query":"order ', toString(trace), '"}}]}]'),
                '[{"role":"assistant","parts":[{"type":"text","content":"Refunded."}]}]'
            )
        ),
        map(
            'gen_ai.operation.name', 'execute_tool', 'gen_ai.tool.name', 'search',
            'gen_ai.tool.call.id', concat('c', toString(trace), '-', toString(turn - 1)),
            'gen_ai.tool.call.result', substring(phrase, 1 + (turn - 1) * 7, 80)
        )
    ),
    1000000 * (1 + chance % 300),
    'Unset'
FROM numbers({first:UInt64} * 10, {traces:UInt64} * 10)
