-- The model calls whose request named a model, one row for each span.
SELECT SpanId AS span_id, GenAiResponseId AS response_id
FROM otel_traces
WHERE GenAiOperation = 'chat' AND GenAiRequestModel = {model:String}
