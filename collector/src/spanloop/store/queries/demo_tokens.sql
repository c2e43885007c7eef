-- The sampled tokens of every current step.
SELECT episode_id, step, response_token_ids
FROM transitions FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
