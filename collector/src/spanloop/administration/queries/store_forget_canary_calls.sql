-- Erase the calls of traces, or of responses, from canaries; what was counted of their sessions has no ids.
ALTER TABLE canary_calls DELETE
WHERE trace_id IN {trace_ids:Array(String)} OR response_id IN {response_ids:Array(String)}
SETTINGS mutations_sync = 2
