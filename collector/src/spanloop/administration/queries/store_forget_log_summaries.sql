-- Erase the summaries of the given traces' log records.
ALTER TABLE log_summaries DELETE WHERE trace_id IN {trace_ids:Array(String)}
SETTINGS mutations_sync = 2
