-- The current episodes of a policy version at given tasks (empty: all), with their tool calls and unrecovered failures, and the
-- episodes of the attempts that evaluation_attempts selects. With run_ids only the latter.
-- policy_versions: all versions that acted in the episode. The task is the task id, else the group: equal first prompts.
-- An attempt that the task runner made again is not an episode of its own.
-- Joins: global.
WITH
    attempt_keys AS (
        SELECT episode_id
        FROM attempts FINAL
        WHERE model = {model:String}
            AND episode_id != ''
            AND (empty({run_ids:Array(String)}) OR has({run_ids:Array(String)}, run_id))
            AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task_id))
            AND startsWith(task_id, {task_prefix:String})
            AND started_at >= {since:DateTime64(9, 'UTC')}
    ),
    selected AS (
        SELECT
            episode_id, revision, episode_key, if(task_id = '', group_id, task_id) AS task, outcome, reward, is_terminated,
            error_class, started_at, duration_ns, step_count, input_tokens, output_tokens, converter_version
        FROM episode_summaries FINAL
        WHERE is_deleted = 0
            AND (
                episode_key IN (SELECT episode_id FROM attempt_keys)
                OR (
                    empty({run_ids:Array(String)})
                    AND policy_version = {model:String}
                    AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task))
                    AND startsWith(task, {task_prefix:String})
                    AND started_at >= {since:DateTime64(9, 'UTC')}
                    AND episode_key NOT IN (SELECT arrayJoin(interrupted_episode_ids) FROM attempts FINAL)
                )
            )
    ),
    calls AS (
        SELECT
            episode_id,
            revision,
            groupUniqArrayIf(policy_version, policy_version != '') AS policy_versions,
            groupArrayArray(arrayMap(part -> part.2, arrayFilter(
                part -> part.1 = 'tool_call', JSONExtract(action, 'parts', 'Array(Tuple(type String, name String))')
            ))) AS called_tools,
            groupArrayArray(arrayMap(result -> result.2, arrayFilter(
                result -> result.1 = 'error', JSONExtract(tool_results, 'Array(Tuple(status String, name String))')
            ))) AS failed_tools
        FROM transitions
        WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
        GROUP BY episode_id, revision
    ),
    unrecovered AS (
        SELECT episode_id, revision, groupUniqArray(toString(error_class)) AS error_classes
        FROM failures FINAL
        WHERE NOT is_recovered AND (episode_id, revision) IN (SELECT episode_id, revision FROM selected)
        GROUP BY episode_id, revision
    )
SELECT
    selected.episode_id AS episode_id,
    selected.revision AS revision,
    selected.episode_key AS episode_key,
    selected.task AS task_id,
    selected.outcome AS outcome,
    selected.reward AS reward,
    selected.is_terminated AS is_terminated,
    selected.error_class AS error_class,
    selected.started_at AS started_at,
    selected.duration_ns AS duration_ns,
    selected.step_count AS steps,
    selected.input_tokens + selected.output_tokens AS tokens,
    selected.converter_version AS converter_version,
    arraySort(calls.policy_versions) AS policy_versions,
    arraySort(unrecovered.error_classes) AS error_classes,
    arrayMap(name -> (name, toUInt32(countEqual(calls.called_tools, name))), arraySort(arrayDistinct(calls.called_tools)))
        ::Map(String, UInt32) AS tool_calls,
    arrayMap(name -> (name, toUInt32(countEqual(calls.failed_tools, name))), arraySort(arrayDistinct(calls.failed_tools)))
        ::Map(String, UInt32) AS failed_tool_calls
FROM selected
LEFT JOIN calls ON calls.episode_id = selected.episode_id AND calls.revision = selected.revision
LEFT JOIN unrecovered ON unrecovered.episode_id = selected.episode_id AND unrecovered.revision = selected.revision
ORDER BY task_id, started_at, episode_id
