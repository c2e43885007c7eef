-- The newest failures of current episode revisions, optionally of one fingerprint.
-- Only rows from the oldest candidate on are merged; there are more candidates than requested, because some revisions are superseded.
-- An episode is assumed to have started at most a week before its failure.
-- Joins: local by episode.
WITH (
    SELECT min(occurred_at)
    FROM (
        SELECT occurred_at
        FROM failure_summaries
        WHERE occurred_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
            AND ({fingerprint:String} = '' OR fingerprint = {fingerprint:String})
        ORDER BY occurred_at DESC
        LIMIT 200 + 4 * {max_rows:UInt32}
    )
) AS oldest
SELECT
    failure_id, episode_id, task_id, step, span_id, agent_name, tool_name, policy_version, error_class, fault_owner,
    is_recovered, headline AS message, confidence, rule, toString(fingerprint) AS fingerprint, occurred_at
FROM failure_summaries AS f FINAL
WHERE revision_hash IN (
        SELECT revision_hash
        FROM episode_summaries FINAL
        WHERE is_deleted = 0
            AND started_at >= toDateTime64(greatest(toUnixTimestamp(toDateTime(oldest, 'UTC')) - 604800, 0), 9, 'UTC')
    )
    AND occurred_at >= oldest
    AND ({fingerprint:String} = '' OR f.fingerprint = {fingerprint:String})
ORDER BY occurred_at DESC, failure_id
LIMIT {max_rows:UInt32}
