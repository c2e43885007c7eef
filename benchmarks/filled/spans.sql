-- Ten spans for each episode: an agent, four model calls with their messages, five tool calls.
INSERT INTO otel_traces (
    Timestamp, TraceId, SpanId, ParentSpanId, SpanName, SpanKind, ServiceName, ResourceAttributes, ScopeName, SpanAttributes,
    Duration, StatusCode, StatusMessage, IngestedAt
)
WITH
    intDiv(number, 10) AS e,
    number % 10 AS k,
    k IN (1, 3, 5, 7) AS is_call,
    sipHash64(number) AS h,
    fromUnixTimestamp64Nano(toInt64({base_ns:Int64} + e * {step_ns:Int64} + k * 400000000)) AS started,
    'Look the order up, say what it costs, and ask before anything is cancelled; never guess a number that a tool can tell. ' AS phrase,
    substring(repeat(phrase, 12), 1 + h % 100, 500 + h % 600) AS heard,
    substring(repeat(phrase, 5), 1 + h % 90, 100 + h % 300) AS said
SELECT
    started,
    lower(hex(sipHash128('trace', e))),
    lower(hex(sipHash64('span', number))),
    if(k = 0, '', lower(hex(sipHash64('span', e * 10)))),
    multiIf(k = 0, 'invoke_agent clerk', is_call, 'chat m', concat('execute_tool tool_', toString(h % 12))),
    if(is_call, 'Client', 'Internal'),
    concat('service-', toString(e % 4)),
    map('service.name', concat('service-', toString(e % 4)), 'host.name', 'node-1', 'telemetry.sdk.language', 'python'),
    'opentelemetry.instrumentation.openai',
    mapConcat(
        map(
            'gen_ai.operation.name', multiIf(k = 0, 'invoke_agent', is_call, 'chat', 'execute_tool'),
            'gen_ai.agent.name', concat('agent-', toString(e % 5)),
            'gen_ai.conversation.id', concat('conversation-', toString(e)),
            'session.id', concat('session-', toString(intDiv(e, 5))),
            'spanloop.task.id', concat(if(e % 10 = 0, 'test-', 'train-'), toString(e % 2000)),
            'server.address', 'api.example.com'
        ),
        if(is_call, map(
            'gen_ai.provider.name', 'openai',
            'gen_ai.request.model', 'm',
            'gen_ai.response.model', concat('m@v', toString(1 + intDiv(e, 10000))),
            'gen_ai.response.id', concat('chatcmpl-', lower(hex(sipHash128('response', number)))),
            'gen_ai.response.finish_reasons', '["stop"]',
            'gen_ai.usage.input_tokens', toString(h % 4000),
            'gen_ai.usage.output_tokens', toString(h % 300),
            'gen_ai.request.temperature', '1',
            'gen_ai.system_instructions', concat('[{"type":"text","content":"', phrase, '"}]'),
            'gen_ai.input.messages', concat('[{"role":"user","parts":[{"type":"text","content":"', heard, '"}]}]'),
            'gen_ai.output.messages', concat('[{"role":"assistant","parts":[{"type":"text","content":"', said, '"}]}]')
        ), map()),
        if(NOT is_call AND k > 0, map(
            'gen_ai.tool.name', concat('tool_', toString(h % 12)),
            'gen_ai.tool.call.id', lower(hex(h)),
            'gen_ai.tool.call.result', said
        ), map()),
        if(h % 50 = 0 AND k > 0, map('error.type', 'TimeoutError'), map())
    ),
    1000000 * (1 + h % 300),
    if(h % 50 = 0 AND k > 0, 'Error', 'Unset'),
    if(h % 50 = 0 AND k > 0, 'timed out', ''),
    toDateTime64(started, 6, 'UTC') + toIntervalSecond(5)
FROM numbers({first:UInt64} * 10, {episodes:UInt64} * 10)
