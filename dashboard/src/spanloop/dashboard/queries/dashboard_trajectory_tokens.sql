-- A slice of one token row: the end of the prompt, and a window of the response with loss mask and logprobs, and what was sampled.
SELECT
    length(prompt_token_ids) AS prompt_tokens,
    length(response_token_ids) AS response_tokens,
    arraySlice(prompt_token_ids, greatest(1, toInt64(length(prompt_token_ids)) - {prompt_tail:UInt32} + 1)) AS prompt_tail,
    arraySlice(response_token_ids, {first_token:UInt32} + 1, {max_tokens:UInt32}) AS response,
    arraySlice(loss_mask, {first_token:UInt32} + 1, {max_tokens:UInt32}) AS loss_mask,
    arraySlice(logprobs, {first_token:UInt32} + 1, {max_tokens:UInt32}) AS logprobs,
    arrayMap(
        position -> arrayExists((start, end) -> start <= position AND position < end, sampled_starts, sampled_ends),
        range({first_token:UInt32}, {first_token:UInt32} + length(response))
    ) AS sampled
FROM trajectories FINAL
PREWHERE episode_id = {episode_id:String} AND revision = {revision:UInt64} AND row_number = {row_number:UInt32}
