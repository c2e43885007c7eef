-- One current episode, or a tombstone when the episode was merged into another.
SELECT
    episode_id, revision, is_deleted, converter_version, episode_key, task_id, group_id, session_id, service_name,
    agent_name, model, policy_version, trace_ids, started_at, duration_ns, step_count, span_count, tool_call_count,
    tool_error_count, input_tokens, output_tokens, outcome, reward, toJSONString(reward_breakdown) AS reward_breakdown,
    is_terminated, is_truncated, error_class, fault_owner, marks, judgements
FROM episodes FINAL
PREWHERE episode_id = {episode_id:String}
