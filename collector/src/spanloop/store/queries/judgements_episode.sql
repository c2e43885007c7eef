-- The current revision of an episode, and the span of one of its steps; no row without the episode or the step.
-- Joins: global.
SELECT
    e.revision AS revision, e.outcome AS outcome, e.error_class AS error_class, e.fault_owner AS fault_owner,
    t.trace_id AS trace_id, t.span_id AS span_id
FROM (
    SELECT episode_id, revision, toString(outcome) AS outcome, toString(error_class) AS error_class,
        toString(fault_owner) AS fault_owner, is_deleted
    FROM episodes FINAL
    PREWHERE episode_id = {episode_id:String}
) AS e
INNER JOIN (
    SELECT episode_id, revision, trace_id, span_id
    FROM transition_rows FINAL
    WHERE episode_id = {episode_id:String} AND step = {step:UInt32}
) AS t ON t.episode_id = e.episode_id AND t.revision = e.revision
WHERE e.is_deleted = 0
