-- The current episodes of a policy version at given tasks (empty: all), each with its tool calls and unrecovered failures.
-- policy_versions: all that acted in the episode. A task is its task id, else its group: equal first prompts.
WITH
    chosen AS (
        SELECT
            episode_id, revision, if(task_id = '', group_id, task_id) AS task, outcome, reward, is_terminated, error_class,
            started_at, converter_version
        FROM episode_summaries FINAL
        WHERE is_deleted = 0
            AND policy_version = {model:String}
            AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task))
            AND startsWith(task, {task_prefix:String})
            AND started_at >= {since:DateTime64(9, 'UTC')}
    ),
    calls AS (
        SELECT
            episode_id,
            revision,
            groupUniqArrayIf(policy_version, policy_version != '') AS policy_versions,
            groupArrayArray(arrayMap(part -> part.2, arrayFilter(
                part -> part.1 = 'tool_call', JSONExtract(action, 'parts', 'Array(Tuple(type String, name String))')
            ))) AS called,
            groupArrayArray(arrayMap(result -> result.2, arrayFilter(
                result -> result.1 = 'error', JSONExtract(tool_results, 'Array(Tuple(status String, name String))')
            ))) AS failed
        FROM transitions FINAL
        PREWHERE (episode_id, revision) IN (SELECT episode_id, revision FROM chosen)
        GROUP BY episode_id, revision
    ),
    unrecovered AS (
        SELECT episode_id, revision, groupUniqArray(toString(error_class)) AS error_classes
        FROM failures FINAL
        WHERE NOT is_recovered AND (episode_id, revision) IN (SELECT episode_id, revision FROM chosen)
        GROUP BY episode_id, revision
    )
SELECT
    chosen.episode_id AS episode_id,
    chosen.revision AS revision,
    chosen.task AS task_id,
    chosen.outcome AS outcome,
    chosen.reward AS reward,
    chosen.is_terminated AS is_terminated,
    chosen.error_class AS error_class,
    chosen.started_at AS started_at,
    chosen.converter_version AS converter_version,
    arraySort(calls.policy_versions) AS policy_versions,
    arraySort(unrecovered.error_classes) AS error_classes,
    arrayMap(name -> (name, toUInt32(countEqual(calls.called, name))), arraySort(arrayDistinct(calls.called)))
        ::Map(String, UInt32) AS tool_calls,
    arrayMap(name -> (name, toUInt32(countEqual(calls.failed, name))), arraySort(arrayDistinct(calls.failed)))
        ::Map(String, UInt32) AS failed_tool_calls
FROM chosen
LEFT JOIN calls ON calls.episode_id = chosen.episode_id AND calls.revision = chosen.revision
LEFT JOIN unrecovered ON unrecovered.episode_id = chosen.episode_id AND unrecovered.revision = chosen.revision
ORDER BY task_id, started_at, episode_id
