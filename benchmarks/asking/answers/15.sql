SELECT count() AS steps
FROM transition_rows FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND policy_version = 'm@v1'
    AND tool_error_count > 0
