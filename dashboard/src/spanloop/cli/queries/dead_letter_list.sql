-- The newest dead letters without their bodies; an empty reason matches all.
SELECT
    dead_letter_id, received_at, signal, reason, detail, item_count, trace_ids,
    replayed_at > toDateTime64(0, 9, 'UTC') AS is_replayed
FROM dead_letters FINAL
WHERE ({reason:String} = '' OR reason = {reason:String})
  AND ({with_replayed:UInt8} = 1 OR replayed_at = toDateTime64(0, 9, 'UTC'))
ORDER BY received_at DESC, dead_letter_id
LIMIT {limit:UInt32}
