-- All model calls, one row for each span.
SELECT SpanId AS span_id, GenAiResponseId AS response_id
FROM otel_traces
WHERE GenAiOperation = 'chat'
