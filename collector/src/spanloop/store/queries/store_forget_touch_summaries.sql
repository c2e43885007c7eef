-- Let the pipeline find the given traces where it looks for what has just come in.
ALTER TABLE trace_summaries UPDATE ingested_at = now64(6, 'UTC') WHERE trace_id IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
