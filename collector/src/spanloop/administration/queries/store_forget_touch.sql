-- Mark the given traces as newly ingested, so that the pipeline converts them again.
ALTER TABLE otel_traces UPDATE IngestedAt = now64(6, 'UTC') WHERE TraceId IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
