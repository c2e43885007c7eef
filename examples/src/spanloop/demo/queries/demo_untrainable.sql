-- Number of current transitions that are not trainable, by reason.
-- Joins: local by episode.
SELECT untrainable_reason AS reason, count() AS transitions
FROM transitions
WHERE NOT is_trainable
    AND (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
GROUP BY reason
ORDER BY transitions DESC, reason
