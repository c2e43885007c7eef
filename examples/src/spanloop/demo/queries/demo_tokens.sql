-- The sampled tokens of all current steps, and whether they are trained on.
-- Joins: local by episode.
SELECT episode_id, step, response_token_ids, is_trainable
FROM transitions
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
