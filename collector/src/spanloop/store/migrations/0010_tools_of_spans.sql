-- The tools of an episode are those that its steps call, and those that only spans name. Stored episodes have the former until
-- they are converted again.
ALTER TABLE episode_summaries_mv MODIFY QUERY
SELECT
    e.started_at AS started_at, e.episode_id AS episode_id, e.revision AS revision, e.is_deleted AS is_deleted,
    e.episode_key AS episode_key, e.converter_version AS converter_version, e.task_id AS task_id, e.group_id AS group_id,
    e.is_terminated AS is_terminated, e.session_id AS session_id, e.service_name AS service_name,
    e.agent_name AS agent_name, e.policy_version AS policy_version, e.duration_ns AS duration_ns, e.step_count AS step_count,
    t.trainable AS trainable_step_count, e.span_count AS span_count, e.tool_call_count AS tool_call_count,
    e.tool_error_count AS tool_error_count, e.input_tokens AS input_tokens, e.output_tokens AS output_tokens,
    e.outcome AS outcome, e.reward AS reward, e.reward_breakdown AS reward_breakdown, e.error_class AS error_class,
    e.fault_owner AS fault_owner, e.marks AS marks, e.model AS model, e.trace_ids AS trace_ids, t.tool_names AS tool_names
FROM episodes AS e
LEFT JOIN (
    SELECT
        episode_id, revision, toUInt32(uniqExactIf(step, is_trainable)) AS trainable,
        arraySort(groupUniqArrayArray(tools)) AS tool_names
    FROM (
        SELECT episode_id, revision, step, is_trainable, arrayConcat(tool_names, result_tools) AS tools FROM transition_rows
        WHERE episode_id IN (SELECT episode_id FROM episodes)
        UNION ALL
        SELECT episode_id, revision, step, is_trainable, CAST([], 'Array(LowCardinality(String))') FROM legacy_transitions
        WHERE episode_id IN (SELECT episode_id FROM episodes)
    )
    GROUP BY episode_id, revision
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision;
