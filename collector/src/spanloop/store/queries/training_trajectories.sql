-- The current token rows of the episodes that a training job requests; an episode without rows has one row without trajectory_id.
-- sampling: the distinct sampling parameters of the same agent's steps from the row's first to its last, as JSON objects.
WITH selected AS (
    SELECT episode_id, revision, task_id, group_id, policy_version, reward, outcome, started_at
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task_id))
        AND startsWith(task_id, {task_prefix:String})
        AND started_at >= {since:DateTime64(9, 'UTC')}
        AND (
            {policy_version:String} = ''
            OR policy_version = {policy_version:String}
            OR (episode_id, revision) IN (
                SELECT episode_id, revision FROM trajectories WHERE policy_version = {policy_version:String}
            )
        )
    ORDER BY started_at DESC, episode_id
    LIMIT {max_episodes:UInt64}
)
SELECT
    selected.episode_id AS episode_id,
    selected.revision AS revision,
    selected.task_id AS task_id,
    selected.group_id AS group_id,
    selected.started_at AS started_at,
    selected.reward AS reward,
    selected.outcome AS outcome,
    t.trajectory_id AS trajectory_id,
    t.row_number AS row_number,
    t.policy_version AS policy_version,
    t.prompt_token_ids AS prompt_token_ids,
    t.response_token_ids AS response_token_ids,
    t.loss_mask AS loss_mask,
    t.logprobs AS logprobs,
    t.is_trainable AS is_trainable,
    t.untrainable_reason AS untrainable_reason,
    arrayDistinct(
        arrayMap(pair -> pair.2, arrayFilter(pair -> pair.1 BETWEEN t.first_step AND t.last_step, s.steps))
    ) AS sampling
FROM selected
LEFT JOIN (
    SELECT *
    FROM trajectories FINAL
    PREWHERE (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
) AS t ON t.episode_id = selected.episode_id AND t.revision = selected.revision
LEFT JOIN (
    SELECT episode_id, revision, agent_name, groupArray((step, toJSONString(sampling))) AS steps
    FROM transitions
    WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
    GROUP BY episode_id, revision, agent_name
) AS s ON s.episode_id = t.episode_id AND s.revision = t.revision AND s.agent_name = t.agent_name
ORDER BY group_id, started_at, episode_id, row_number
