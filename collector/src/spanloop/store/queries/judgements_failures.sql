-- The failures of a revision, in the order of their numbers; those that decided nothing are last among equals.
SELECT
    failure_id, step, trace_id, span_id, fingerprint, toString(rule) AS rule, toString(fault_owner) AS fault_owner,
    toString(error_class) AS error_class, is_recovered, message
FROM failures FINAL
PREWHERE episode_id = {episode_id:String} AND revision = {revision:UInt64}
ORDER BY is_recovered, toUInt64OrZero(splitByChar('/', failure_id)[-1])
