-- Sampling and tokens of one transition; only the end of the prompt.
SELECT
    policy_version, response_id, finish_reason, reward, toJSONString(sampling) AS sampling, is_trainable,
    untrainable_reason, untrainable_detail,
    length(prompt_token_ids) AS prompt_tokens,
    length(response_token_ids) AS response_tokens,
    arraySlice(prompt_token_ids, greatest(1, toInt64(length(prompt_token_ids)) - {prompt_tail:UInt32} + 1)) AS prompt_tail,
    arraySlice(response_token_ids, 1, {max_tokens:UInt32}) AS response,
    arraySlice(logprobs, 1, {max_tokens:UInt32}) AS logprobs
FROM transitions
WHERE episode_id = {episode_id:String} AND revision = {revision:UInt64} AND step = {step:UInt32}
