-- Erase the gateway's captures of the given traces and responses.
ALTER TABLE generations DELETE
WHERE trace_id IN {trace_ids:Array(String)} OR response_id IN {response_ids:Array(String)}
SETTINGS mutations_sync = 2
