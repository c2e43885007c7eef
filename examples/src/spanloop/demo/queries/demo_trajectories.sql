-- All current token rows.
-- Joins: local by episode.
SELECT episode_id, first_step, last_step, response_token_ids, loss_mask
FROM trajectories FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
ORDER BY episode_id, row_number
