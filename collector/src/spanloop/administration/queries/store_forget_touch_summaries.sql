-- Mark the summaries of the given traces as newly ingested, so that the pipeline finds the traces.
ALTER TABLE trace_summaries UPDATE ingested_at = now64(6, 'UTC') WHERE trace_id IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
