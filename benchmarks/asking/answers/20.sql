SELECT episode_id, outcome, reward, step_count, policy_version
FROM episodes FINAL
WHERE is_deleted = 0
    AND episode_id = {episode_id:String}
