SELECT count() AS failures
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND endsWith(message, concat('timed out after ', {seconds:String}, ' s'))
