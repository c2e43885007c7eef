-- All spans of the traces count, whichever agent they are of; a span that was stored twice counts once.
SELECT
    TraceId,
    uniqExact(SpanId) AS spans,
    uniqExactIf(SpanId, GenAiOperation = 'chat') AS model_calls
FROM otel_traces
WHERE TraceId IN (SELECT TraceId FROM otel_traces WHERE GenAiAgentName = 'agent-3')
GROUP BY TraceId
ORDER BY min(Timestamp) DESC, TraceId DESC
LIMIT 20
