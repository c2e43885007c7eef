-- All token rows of the given episode revisions (two parallel lists), with each row's service and the state of its first step.
-- Joins: global.
WITH given AS (
    SELECT pair.1 AS episode_id, pair.2 AS revision
    FROM (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})) AS pair)
)
SELECT
    t.trajectory_id AS trajectory_id,
    t.episode_id AS episode_id,
    t.revision AS revision,
    t.row_number AS row_number,
    t.task_id AS task_id,
    t.group_id AS group_id,
    t.agent_name AS agent_name,
    t.policy_version AS policy_version,
    t.prompt_token_ids AS prompt_token_ids,
    t.response_token_ids AS response_token_ids,
    t.loss_mask AS loss_mask,
    t.logprobs AS logprobs,
    t.reward AS reward,
    t.is_trainable AS is_trainable,
    t.untrainable_reason AS untrainable_reason,
    e.service_name AS service_name,
    s.state AS state
FROM (
    SELECT * FROM trajectories FINAL
    PREWHERE episode_id IN ({episode_ids:Array(String)})
        AND (episode_id, revision) IN (SELECT episode_id, revision FROM given)
) AS t
INNER JOIN (
    SELECT episode_id, revision, service_name FROM episodes FINAL PREWHERE episode_id IN ({episode_ids:Array(String)})
    WHERE {data_set_id:String} = ''
    UNION ALL
    SELECT episode_id, revision, service_name FROM data_set_episodes FINAL
    PREWHERE data_set_id = {data_set_id:String} AND episode_id IN ({episode_ids:Array(String)})
) AS e ON e.episode_id = t.episode_id AND e.revision = t.revision
LEFT JOIN (
    SELECT episode_id, revision, step, state FROM transitions
    WHERE episode_id IN ({episode_ids:Array(String)})
        AND (episode_id, revision) IN (SELECT episode_id, revision FROM given)
) AS s ON s.episode_id = t.episode_id AND s.revision = t.revision AND s.step = t.first_step
ORDER BY group_id, episode_id, row_number
