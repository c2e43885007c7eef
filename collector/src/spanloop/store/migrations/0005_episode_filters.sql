-- What a filter asks of an episode beside its summary: model, traces and tools. Their tables lead with the episode's id, so a
-- condition on them read the whole store for a range of time.
ALTER TABLE episode_summaries ADD COLUMN IF NOT EXISTS model LowCardinality(String);

ALTER TABLE episode_summaries ADD COLUMN IF NOT EXISTS trace_ids Array(String) CODEC(ZSTD(1));

ALTER TABLE episode_summaries ADD COLUMN IF NOT EXISTS tool_names Array(LowCardinality(String));

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
        arraySort(groupUniqArrayArray(tool_names)) AS tool_names
    FROM (
        SELECT episode_id, revision, step, is_trainable, tool_names FROM transition_rows
        WHERE episode_id IN (SELECT episode_id FROM episodes)
        UNION ALL
        SELECT episode_id, revision, step, is_trainable, CAST([], 'Array(LowCardinality(String))') FROM legacy_transitions
        WHERE episode_id IN (SELECT episode_id FROM episodes)
    )
    GROUP BY episode_id, revision
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision;

-- Of two rows of a revision the one that is inserted last counts. The join and the groups go to disk where memory is short.
INSERT INTO episode_summaries
SELECT s.* EXCEPT (model, trace_ids, tool_names), e.model, e.trace_ids, t.tool_names
FROM (SELECT * FROM episode_summaries FINAL WHERE is_deleted = 0) AS s
LEFT JOIN (SELECT episode_id, revision, model, trace_ids FROM episodes FINAL) AS e
    ON e.episode_id = s.episode_id AND e.revision = s.revision
LEFT JOIN (
    SELECT episode_id, revision, arraySort(groupUniqArrayArray(tool_names)) AS tool_names
    FROM step_summaries
    GROUP BY episode_id, revision
) AS t ON t.episode_id = s.episode_id AND t.revision = s.revision
SETTINGS join_algorithm = 'grace_hash', grace_hash_join_initial_buckets = 8, max_bytes_in_join = 268435456,
    max_bytes_before_external_group_by = 268435456;
