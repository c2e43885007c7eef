-- By what the tasks of episodes are recognised: id, the content's digest where the task runner made the attempt, and a digest
-- of what the policy saw first. An episode without a task id is of its group; prompt_digest is empty without messages.
-- Joins: global.
SELECT
    first.episode_id AS episode_id,
    first.task AS task_id,
    any(a.task_digest) AS task_digest,
    any(if(length(first.state) <= 2, '', lower(hex(SHA256(first.state))))) AS prompt_digest
FROM (
    SELECT
        episode_id,
        argMax(if(task_id = '', group_id, task_id), revision) AS task,
        argMax(state, revision) AS state
    FROM transitions
    WHERE episode_id IN {episode_ids:Array(String)} AND step = 0
    GROUP BY episode_id
) AS first
LEFT JOIN (
    SELECT episode_id, episode_key FROM episode_summaries FINAL
    WHERE is_deleted = 0 AND episode_key != '' AND episode_id IN {episode_ids:Array(String)}
) AS e ON e.episode_id = first.episode_id
LEFT JOIN (
    SELECT episode_id AS episode_key, any(task_digest) AS task_digest FROM attempts FINAL
    WHERE episode_id != '' GROUP BY episode_id
) AS a ON a.episode_key = e.episode_key
GROUP BY episode_id, task_id
ORDER BY episode_id
