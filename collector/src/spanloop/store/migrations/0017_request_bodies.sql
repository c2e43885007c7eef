-- Claude Code logs the bodies of its requests and responses under the span around them; they are read with that trace.
ALTER TABLE otel_logs MODIFY COLUMN IF EXISTS SpanEventName LowCardinality(String) MATERIALIZED
    multiIf(
        SpanId = '', '',
        (if(EventName != '', EventName, LogAttributes['event.name']) AS told) = 'gen_ai.evaluation.result', '',
        startsWith(told, 'gen_ai.') OR told IN ('exception', 'api_request_body', 'api_response_body'), told,
        ''
    );
