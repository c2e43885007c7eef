-- Failed spans since a time, grouped by service, span name, tool and error type, most frequent first.
SELECT
    ServiceName AS service_name,
    SpanName AS span_name,
    GenAiToolName AS tool_name,
    ErrorType AS error_type,
    count() AS span_count,
    uniqExact(TraceId) AS trace_count,
    max(Timestamp) AS last_at,
    argMax(StatusMessage, Timestamp) AS last_message,
    argMax(TraceId, Timestamp) AS last_trace_id,
    argMax(SpanId, Timestamp) AS last_span_id
FROM otel_traces
WHERE Timestamp >= {since:DateTime64(9, 'UTC')} AND (StatusCode IN ('Error', 'STATUS_CODE_ERROR') OR ErrorType != '')
GROUP BY service_name, span_name, tool_name, error_type
ORDER BY span_count DESC, last_at DESC
LIMIT {limit:UInt32}
