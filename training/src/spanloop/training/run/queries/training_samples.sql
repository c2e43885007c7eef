-- What each step of one job did with each row of its dataset; of a step that was repeated, the newest attempt's rows.
-- Joins: local by job.
SELECT
    attempt, step, sample, toString(kind) AS kind, episode_id, revision, trajectory_id, row_number, trained_steps, group_id,
    toString(policy_version) AS policy_version, tokens, prompt_tokens, response_tokens, distinct_2, base_loss, pass_rate,
    weight, advantage, old_logprob, new_logprob, importance_mean,
    importance_max, loss, age_versions, age_days
FROM training_samples FINAL
WHERE job_id = {job_id:String}
    AND (step, attempt) IN (
        SELECT step, max(attempt) FROM training_samples WHERE job_id = {job_id:String} GROUP BY step
    )
ORDER BY step, sample
