-- The dead letters whose id starts with a prefix, with their bodies; two rows when the prefix is ambiguous.
SELECT
    dead_letter_id, received_at, signal, reason, detail, content_type, raw_base64, item_count, trace_ids, span_ids,
    toUnixTimestamp64Nano(received_at) AS received_ns, replayed_at, replayed_at > toDateTime64(0, 9, 'UTC') AS is_replayed
FROM dead_letters FINAL
WHERE startsWith(dead_letter_id, {prefix:String})
ORDER BY dead_letter_id
LIMIT 2
