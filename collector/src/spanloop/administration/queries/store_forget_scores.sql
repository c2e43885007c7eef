-- Erase the scores of the given traces, responses, episode ids of the app and session.
ALTER TABLE scores DELETE
WHERE trace_id IN {trace_ids:Array(String)}
    OR response_id IN {response_ids:Array(String)}
    OR episode_key IN {episode_keys:Array(String)}
    OR ({session_id:String} != '' AND session_id = {session_id:String})
SETTINGS mutations_sync = 2
