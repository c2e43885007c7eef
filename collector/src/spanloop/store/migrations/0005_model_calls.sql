-- What the pipeline needs of spans and log records in any dialect, without reading a Map.

-- Wider than the converters' dialects are: it only says where a loop may go on, never what a span is.
ALTER TABLE otel_traces ADD COLUMN IF NOT EXISTS IsModelCall Bool MATERIALIZED
    SpanAttributes['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content')
    OR (SpanAttributes['gen_ai.operation.name'] = '' AND SpanAttributes['gen_ai.request.model'] != '')
    OR SpanAttributes['openinference.span.kind'] = 'LLM'
    OR SpanAttributes['llm.request.type'] IN ('chat', 'completion')
    OR match(SpanAttributes['ai.operationId'], '\\.do(Generate|Stream)$')
    OR SpanAttributes['span.kind'] IN ('LLM', '"LLM"')
    OR SpanName = 'raw_gen_ai_request';

-- The name of a record that tells of its span, as instrumentors send messages and exceptions; empty for all others.
ALTER TABLE otel_logs ADD COLUMN IF NOT EXISTS SpanEventName LowCardinality(String) MATERIALIZED
    multiIf(
        SpanId = '', '',
        (if(EventName != '', EventName, LogAttributes['event.name']) AS told) = 'gen_ai.evaluation.result', '',
        startsWith(told, 'gen_ai.') OR told = 'exception', told,
        ''
    );

ALTER TABLE otel_logs ADD INDEX IF NOT EXISTS idx_ingested_at IngestedAt TYPE minmax GRANULARITY 1;
