-- Metrics of the row itself, beside what a step did with it.
ALTER TABLE training_samples ADD COLUMN IF NOT EXISTS
    prompt_tokens UInt32 COMMENT 'length of the row''s prompt'
    AFTER tokens;

ALTER TABLE training_samples ADD COLUMN IF NOT EXISTS
    response_tokens UInt32 COMMENT 'length of the row''s response, tool results included'
    AFTER prompt_tokens;

ALTER TABLE training_samples ADD COLUMN IF NOT EXISTS
    distinct_2 Nullable(Float64) COMMENT 'share of distinct ones among the bigrams of the trained tokens; null with fewer than two'
    AFTER response_tokens;

ALTER TABLE training_samples ADD COLUMN IF NOT EXISTS
    base_loss Nullable(Float64) COMMENT 'mean negative log-probability of a trained token under the base, nats; null where no coreset needed it'
    AFTER distinct_2;

ALTER TABLE training_samples ADD COLUMN IF NOT EXISTS
    pass_rate Nullable(Float64) COMMENT 'share of the attempts of the row''s group that succeed; null when not known'
    AFTER base_loss;
