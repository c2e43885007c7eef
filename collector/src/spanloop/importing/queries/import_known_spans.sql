-- The stored spans of the given traces; the traces' summaries give the time range to read.
WITH (SELECT (min(started_at), max(ended_at)) FROM trace_summaries WHERE trace_id IN {trace_ids:Array(String)}) AS spans_at
SELECT DISTINCT TraceId, SpanId
FROM otel_traces
WHERE TraceId IN {trace_ids:Array(String)} AND Timestamp >= spans_at.1 AND Timestamp <= spans_at.2
