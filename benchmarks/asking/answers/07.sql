SELECT episode_id, outcome
FROM episodes FINAL
WHERE is_deleted = 0
    AND session_id = {session:String}
ORDER BY started_at DESC, episode_id DESC
LIMIT 20
