-- What a training job reads of captures and of scores. Rows that were captured or converted earlier have empty values.
ALTER TABLE generations ADD COLUMN IF NOT EXISTS
    tokenizer LowCardinality(String) COMMENT 'fingerprint of tokenizer and chat template of these weights; empty where the gateway does not know it'
    AFTER policy_version;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    step_rewards Array(Nullable(Float64)) COMMENT 'reward of each of sampled_steps by scores of this call alone; null without one'
    AFTER sampled_ends;

ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    tokenizers Array(LowCardinality(String)) COMMENT 'fingerprints that the captures of the row''s steps carry; empty text for a step without one'
    AFTER step_rewards;
