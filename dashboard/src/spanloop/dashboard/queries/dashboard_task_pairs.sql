-- Tasks that two policy versions both attempted: successes and failures of each version, and an example episode of each outcome.
SELECT
    task_id,
    countIf(policy_version = {before:String}) AS before_episodes,
    countIf(policy_version = {after:String}) AS after_episodes,
    countIf(policy_version = {before:String} AND outcome = 'success') AS before_successes,
    countIf(policy_version = {after:String} AND outcome = 'success') AS after_successes,
    countIf(policy_version = {before:String} AND outcome = 'failure') AS before_failures,
    countIf(policy_version = {after:String} AND outcome = 'failure') AS after_failures,
    avgIf(reward, policy_version = {before:String}) AS before_reward,
    avgIf(reward, policy_version = {after:String}) AS after_reward,
    argMinIf(episode_id, started_at, policy_version = {before:String} AND outcome = 'success') AS before_success_id,
    argMinIf(episode_id, started_at, policy_version = {before:String} AND outcome = 'failure') AS before_failure_id,
    argMinIf(episode_id, started_at, policy_version = {after:String} AND outcome = 'success') AS after_success_id,
    argMinIf(episode_id, started_at, policy_version = {after:String} AND outcome = 'failure') AS after_failure_id,
    toString(anyIf(error_class, policy_version = {before:String} AND error_class != '')) AS before_error_class,
    toString(anyIf(error_class, policy_version = {after:String} AND error_class != '')) AS after_error_class
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND task_id != ''
    AND policy_version IN ({before:String}, {after:String})
    AND startsWith(task_id, {task_prefix:String})
GROUP BY task_id
HAVING before_episodes > 0 AND after_episodes > 0
ORDER BY task_id
LIMIT {max_rows:UInt32}
