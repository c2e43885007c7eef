-- What is known of each attempt of an evaluation, and the figures that are computed of it. In rows of earlier evaluations the
-- new columns are empty; there, attempts without a score were left out.
ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    run_id String COMMENT 'of the task runner; empty for an episode that it did not run'
    AFTER task_id;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    attempt UInt32 COMMENT 'number of the attempt at the task in the run'
    AFTER run_id;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    state LowCardinality(String) COMMENT 'scored, or why it counts as a failure: crashed, timed_out, unscored, incomplete'
    AFTER attempt;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    is_training_task Bool COMMENT 'the version or an ancestor of it was trained on the task'
    AFTER left_out;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    latency_s Nullable(Float64) COMMENT 'from the attempt''s begin to its end'
    AFTER reward;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    tokens Nullable(Float64) COMMENT 'prompt and completion tokens; null without an episode'
    AFTER latency_s;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    steps Nullable(Float64) COMMENT 'model calls that acted; null without an episode'
    AFTER tokens;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    tool_selection Nullable(Float64) COMMENT 'calls of the tools of the reference calls, by the larger number of both; null without reference calls'
    AFTER steps;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    plan_success Nullable(Float64) COMMENT '1: it made all reference calls in their order; null as above'
    AFTER tool_selection;

ALTER TABLE evaluation_episodes ADD COLUMN IF NOT EXISTS
    step_efficiency Nullable(Float64) COMMENT 'reference calls by the larger number of both where it succeeded, else 0; null as above'
    AFTER plan_success;

ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS
    states Map(LowCardinality(String), UInt32) COMMENT 'attempts that count, by state'
    AFTER left_out;

ALTER TABLE evaluations ADD COLUMN IF NOT EXISTS
    training_tasks UInt32 COMMENT 'tasks that count although the version or an ancestor of it was trained on them'
    AFTER states;

-- Means over tasks with their intervals, inserted before the evaluation that they belong to.
CREATE TABLE IF NOT EXISTS evaluation_figures (
    evaluation_id String,
    evaluation_revision UInt64,
    position UInt32 COMMENT 'of the figure in lists',
    figure LowCardinality(String) COMMENT 'a metric, pass@k, or error: and a failure class',
    value Float64,
    low Float64,
    high Float64,
    tasks UInt32 COMMENT 'that have the figure'
) ENGINE = ReplacingMergeTree
ORDER BY (evaluation_id, evaluation_revision, figure);
