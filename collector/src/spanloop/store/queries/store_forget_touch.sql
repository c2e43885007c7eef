-- Let the pipeline see the given traces as if they had just come in.
ALTER TABLE otel_traces UPDATE IngestedAt = now64(6, 'UTC') WHERE TraceId IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
