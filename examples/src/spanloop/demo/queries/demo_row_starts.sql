-- Number of current token rows by the reason for which they start; only episodes with several steps can have several rows.
-- Joins: local by episode.
SELECT row_start, count() AS token_rows
FROM trajectories FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
GROUP BY row_start
ORDER BY row_start
