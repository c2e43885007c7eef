-- A log record that holds the messages of its span counts as an event of the span, whatever its name is: AWS's distribution of
-- OpenTelemetry names it after the instrumentation scope. Records that are stored already keep the name that they have.
ALTER TABLE otel_logs MODIFY COLUMN IF EXISTS SpanEventName LowCardinality(String) MATERIALIZED
    multiIf(
        SpanId = '', '',
        (if(EventName != '', EventName, LogAttributes['event.name']) AS told) = 'gen_ai.evaluation.result', '',
        startsWith(told, 'gen_ai.') OR told IN ('exception', 'api_request_body', 'api_response_body'), told,
        startsWith(Body, '{') AND position(Body, '"messages"') > 0
            AND (JSONHas(Body, 'input', 'messages') OR JSONHas(Body, 'output', 'messages')),
        if(told != '', told, 'messages'),
        ''
    );
