-- Erase the judgements of the given traces, and those of episodes with one of them, whose comments may quote it.
ALTER TABLE judgements DELETE
WHERE trace_id IN {trace_ids:Array(String)} OR episode_id IN {episode_ids:Array(String)}
SETTINGS mutations_sync = 2
