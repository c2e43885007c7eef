-- The current token rows of the episodes that a training job requests; an episode without rows has one row without trajectory_id.
-- sampling, policy_versions: the distinct sampling parameters (JSON objects) and policy versions of the row's steps; for rows of
-- earlier converters, which have no sampled_steps, of the same agent's steps from the row's first to its last.
-- untrainable_calls: the reasons of the row's steps that are not in its loss.
-- fault_*: what failed in the episode, parallel arrays. decided_by: who caused the failure that decided a failed episode.
-- tokenizers: distinct fingerprints that the captures of the row's steps carry.
-- step_rewards: parallel to sampled_steps. is_scored: the episode itself was scored; otherwise its reward is the mean of its steps'.
-- consumed_jobs, consumed_steps: episodes that these trainings have trained on until a step each are left out (parallel lists).
-- ended_before: an episode counts when it ended before, so that its feedback had time to arrive.
-- data_set: the revisions of this version of a data set, in place of the current ones.
-- An empty list or text selects everything. sample_rate and max_episodes take whole groups, because a part of a group has another
-- baseline; an episode without a group is one of its own. Only a first group that exceeds max_episodes is cut.
-- Joins: global.
WITH matching AS (
    SELECT
        episode_id, revision, task_id, group_id, policy_version, reward, outcome, started_at, marks,
        CAST(notEmpty(reward_breakdown), 'Bool') AS is_scored,
        if(outcome = 'failure', fault_owner, '') AS decided_by,
        if(group_id = '', episode_id, group_id) AS unit
    FROM (
        SELECT
            episode_id, revision, task_id, group_id, service_name, agent_name, policy_version, reward, reward_breakdown, outcome,
            fault_owner, started_at, duration_ns, marks
        FROM episode_summaries FINAL
        WHERE is_deleted = 0 AND {data_set:String} = ''
        UNION ALL
        SELECT
            episode_id, revision, task_id, group_id, service_name, agent_name, policy_version, reward, reward_breakdown, outcome,
            fault_owner, started_at, duration_ns, marks
        FROM data_set_episodes FINAL
        WHERE data_set_id IN (
            SELECT data_set_id
            FROM data_sets FINAL
            WHERE concat(name, '@v', toString(version)) = {data_set:String}
            ORDER BY created_at, data_set_id
            LIMIT 1
        )
    )
    WHERE (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task_id))
        AND startsWith(task_id, {task_prefix:String})
        AND started_at >= {since:DateTime64(9, 'UTC')}
        AND started_at < {until:DateTime64(9, 'UTC')}
        AND started_at + toIntervalNanosecond(duration_ns) < {ended_before:DateTime64(9, 'UTC')}
        AND episode_id NOT IN (
            SELECT episode_id
            FROM training_samples
            WHERE has({consumed_jobs:Array(String)}, job_id)
                AND step <= arrayElement({consumed_steps:Array(UInt32)}, indexOf({consumed_jobs:Array(String)}, job_id))
        )
        AND (empty({services:Array(String)}) OR has({services:Array(String)}, service_name))
        AND (empty({agents:Array(String)}) OR has({agents:Array(String)}, agent_name))
        AND (
            empty({models:Array(String)})
            OR (episode_id, revision) IN (
                SELECT episode_id, revision FROM transitions WHERE has({models:Array(String)}, model)
            )
        )
        AND (
            empty({failure_classes:Array(String)})
            OR (episode_id, revision) IN (
                SELECT episode_id, revision FROM failures WHERE has({failure_classes:Array(String)}, error_class)
            )
        )
        AND (
            empty({without_failure_classes:Array(String)})
            OR (episode_id, revision) NOT IN (
                SELECT episode_id, revision FROM failures WHERE has({without_failure_classes:Array(String)}, error_class)
            )
        )
        AND (empty({marks:Array(String)}) OR hasAny(marks, {marks:Array(String)}))
        AND NOT hasAny(marks, {without_marks:Array(String)})
        AND cityHash64(unit, {seed:UInt64}) <= {sample_rate:Float64} * 18446744073709551615
        AND (
            {policy_version:String} = ''
            OR policy_version = {policy_version:String}
            OR (episode_id, revision) IN (
                SELECT episode_id, revision FROM trajectories WHERE policy_version = {policy_version:String}
            )
        )
),
selected AS (
    SELECT * EXCEPT unit
    FROM matching
    WHERE unit IN (
        SELECT unit
        FROM (
            SELECT
                unit, count() AS episodes,
                sum(episodes) OVER (ORDER BY max(started_at) DESC, unit ROWS UNBOUNDED PRECEDING) AS running
            FROM matching
            GROUP BY unit
        )
        WHERE running <= {max_episodes:UInt64} OR running = episodes
    )
    ORDER BY started_at DESC, episode_id
    LIMIT {max_episodes:UInt64}
),
if(
    empty(t.sampled_steps),
    arrayFilter(step -> step.1 BETWEEN t.first_step AND t.last_step, s.steps),
    arrayFilter(step -> has(t.sampled_steps, step.1), s.steps)
) AS row_steps
SELECT
    selected.episode_id AS episode_id,
    selected.revision AS revision,
    selected.task_id AS task_id,
    selected.group_id AS group_id,
    selected.started_at AS started_at,
    selected.reward AS reward,
    selected.outcome AS outcome,
    selected.decided_by AS decided_by,
    selected.marks AS marks,
    selected.is_scored AS is_scored,
    t.trajectory_id AS trajectory_id,
    t.row_number AS row_number,
    t.policy_version AS policy_version,
    t.prompt_token_ids AS prompt_token_ids,
    t.response_token_ids AS response_token_ids,
    t.loss_mask AS loss_mask,
    t.logprobs AS logprobs,
    t.first_step AS first_step,
    t.last_step AS last_step,
    t.sampled_steps AS sampled_steps,
    t.sampled_starts AS sampled_starts,
    t.sampled_ends AS sampled_ends,
    t.tokenizers AS tokenizers,
    arrayResize(t.step_rewards, length(t.sampled_steps), NULL) AS step_rewards,
    t.is_trainable AS is_trainable,
    t.untrainable_reason AS untrainable_reason,
    arrayDistinct(arrayMap(step -> step.2, row_steps)) AS sampling,
    arrayDistinct(arrayPushFront(
        arrayMap(step -> step.3, arrayFilter(step -> notEmpty(t.sampled_steps) OR step.3 != '', row_steps)),
        toString(t.policy_version)
    )) AS policy_versions,
    arrayFilter(reason -> notEmpty(reason), arrayMap(step -> step.4, row_steps)) AS untrainable_calls,
    arrayMap(fault -> fault.1, f.faults) AS fault_steps,
    arrayMap(fault -> fault.2, f.faults) AS fault_classes,
    arrayMap(fault -> fault.3, f.faults) AS fault_owners,
    arrayMap(fault -> fault.4, f.faults) AS fault_is_recovered
FROM selected
LEFT JOIN (
    SELECT *
    FROM trajectories FINAL
    PREWHERE (episode_id, revision) GLOBAL IN (SELECT episode_id, revision FROM selected)
) AS t ON t.episode_id = selected.episode_id AND t.revision = selected.revision
LEFT JOIN (
    SELECT episode_id, revision, agent_name, groupArray((step, toJSONString(sampling), toString(policy_version), toString(untrainable_reason))) AS steps
    FROM transitions
    WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
    GROUP BY episode_id, revision, agent_name
) AS s ON s.episode_id = t.episode_id AND s.revision = t.revision AND s.agent_name = t.agent_name
LEFT JOIN (
    SELECT
        episode_id, revision,
        groupArray((step, toString(error_class), toString(fault_owner), toUInt8(is_recovered))) AS faults
    FROM failures FINAL
    WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
    GROUP BY episode_id, revision
) AS f ON f.episode_id = selected.episode_id AND f.revision = selected.revision
ORDER BY group_id, started_at, episode_id, row_number
