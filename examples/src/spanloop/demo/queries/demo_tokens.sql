-- The sampled tokens of all current steps.
SELECT episode_id, step, response_token_ids
FROM transitions
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
