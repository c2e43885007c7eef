-- Erase the dead letters with items of the given traces.
ALTER TABLE dead_letters DELETE WHERE hasAny(trace_ids, {trace_ids:Array(String)})
SETTINGS mutations_sync = 2
