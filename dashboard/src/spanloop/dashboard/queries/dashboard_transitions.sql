-- The transitions of one episode revision in order, without their messages and token arrays.
SELECT
    step, agent_name, span_id, response_id, policy_version, reward, toJSONString(reward_breakdown) AS reward_breakdown,
    finish_reason, token_source, capture_join, length(prompt_token_ids) AS prompt_tokens,
    length(response_token_ids) AS response_tokens, is_trainable, untrainable_reason, untrainable_detail,
    tool_error_count, error_class, fault_owner, is_terminated, is_truncated, duration_ns
FROM transitions
WHERE episode_id = {episode_id:String} AND revision = {revision:UInt64}
ORDER BY step
