-- Scores of single model calls, for jobs that train on them. Rows that were converted earlier have empty arrays until they are converted again.
ALTER TABLE trajectories ADD COLUMN IF NOT EXISTS
    step_rewards Array(Nullable(Float64)) COMMENT 'reward of each of sampled_steps by scores of this call alone; null without one'
    AFTER sampled_ends;
