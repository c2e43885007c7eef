-- The current revisions of the given episodes, with the columns of data_set_episodes.
SELECT
    episode_id, revision, converter_version, task_id, group_id, session_id, service_name, agent_name, model, policy_version, started_at,
    duration_ns, step_count, input_tokens, output_tokens, outcome, reward, reward_breakdown, error_class, fault_owner, marks, trace_ids
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND episode_id IN {episode_ids:Array(String)}
ORDER BY episode_id
