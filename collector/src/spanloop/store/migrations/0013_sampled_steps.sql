-- Which step sampled which tokens of a token row. Rows that were converted earlier have empty arrays until they are converted again.
ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    sampled_steps Array(UInt32) COMMENT 'the steps whose sampled tokens the row has, in order; empty in rows of earlier converters'
    AFTER logprobs;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    sampled_starts Array(UInt32) COMMENT 'position in response_token_ids of the first token that each of sampled_steps sampled'
    AFTER sampled_steps;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    sampled_ends Array(UInt32) COMMENT 'position behind the last token that each of sampled_steps sampled'
    AFTER sampled_starts;
