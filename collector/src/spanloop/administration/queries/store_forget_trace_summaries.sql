-- Erase the summaries of the given traces.
ALTER TABLE trace_summaries DELETE WHERE trace_id IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
