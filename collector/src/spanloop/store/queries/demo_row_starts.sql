-- Why current token rows begin where they do; only episodes with several steps can have more than one row.
SELECT row_start, count() AS token_rows
FROM trajectories FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
GROUP BY row_start
ORDER BY row_start
