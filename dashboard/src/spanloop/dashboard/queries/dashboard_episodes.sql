-- The newest episodes that match the filters (an empty filter matches all); no message column is read.
-- Only rows from the oldest candidate on are merged. There are four times as many candidates as requested, because some are superseded.
WITH (
    SELECT min(started_at)
    FROM (
        SELECT started_at
        FROM episode_summaries
        WHERE is_deleted = 0
            AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
            AND ({outcome:String} = '' OR outcome = {outcome:String})
            AND ({policy_version:String} = '' OR policy_version = {policy_version:String})
            AND ({agent_name:String} = '' OR agent_name = {agent_name:String})
            AND ({with_tool_errors:UInt8} = 0 OR tool_error_count > 0)
            AND ({text:String} = '' OR positionCaseInsensitive(concat(episode_id, ' ', task_id, ' ', session_id, ' ', episode_key), {text:String}) > 0)
        ORDER BY started_at DESC
        LIMIT 4 * ({max_rows:UInt32} + {skip_rows:UInt32})
    )
) AS oldest
SELECT
    episode_id, revision, task_id, service_name, agent_name, policy_version, started_at, duration_ns,
    step_count, span_count, tool_call_count, tool_error_count, input_tokens, output_tokens,
    outcome, reward, error_class, fault_owner
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND started_at >= oldest
    AND ({outcome:String} = '' OR outcome = {outcome:String})
    AND ({policy_version:String} = '' OR policy_version = {policy_version:String})
    AND ({agent_name:String} = '' OR agent_name = {agent_name:String})
    AND ({with_tool_errors:UInt8} = 0 OR tool_error_count > 0)
    AND ({text:String} = '' OR positionCaseInsensitive(concat(episode_id, ' ', task_id, ' ', session_id, ' ', episode_key), {text:String}) > 0)
ORDER BY started_at DESC, episode_id
LIMIT {max_rows:UInt32} OFFSET {skip_rows:UInt32}
