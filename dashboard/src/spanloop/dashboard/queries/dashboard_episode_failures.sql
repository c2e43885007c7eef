-- The failures of one episode revision in order of time.
SELECT
    failure_id, step, span_id, tool_name, error_class, fault_owner, is_recovered, message, evidence, confidence, rule, fingerprint, occurred_at
FROM failures FINAL
PREWHERE episode_id = {episode_id:String} AND revision = {revision:UInt64}
ORDER BY occurred_at, failure_id
