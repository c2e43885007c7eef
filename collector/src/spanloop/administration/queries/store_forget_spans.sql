-- Erase the spans of the given traces.
ALTER TABLE otel_traces DELETE WHERE TraceId IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
