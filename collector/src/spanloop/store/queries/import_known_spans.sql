-- Which spans of the given traces are stored.
SELECT DISTINCT TraceId, SpanId
FROM otel_traces
WHERE TraceId IN {trace_ids:Array(String)}
