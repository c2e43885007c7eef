-- The token rows of one episode revision, without their tokens.
SELECT
    row_number, agent_name, policy_version, first_step, last_step, row_start,
    length(prompt_token_ids) AS prompt_tokens, length(response_token_ids) AS response_tokens,
    arraySum(loss_mask) AS trained_tokens, reward, is_trainable, untrainable_reason
FROM trajectories FINAL
PREWHERE episode_id = {episode_id:String} AND revision = {revision:UInt64}
ORDER BY row_number
