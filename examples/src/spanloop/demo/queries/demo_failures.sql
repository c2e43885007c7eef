-- Number of current failures by owner and class, and how many of them the episode recovered from.
-- Joins: local by episode.
SELECT fault_owner AS owner, error_class, count() AS failures, countIf(is_recovered) AS recovered
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
GROUP BY owner, error_class
ORDER BY failures DESC, owner, error_class
