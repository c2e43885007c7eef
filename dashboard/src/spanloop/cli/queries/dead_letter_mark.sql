-- Mark a dead letter as replayed: insert a newer row with the same id, unless the letter was received again since then.
INSERT INTO dead_letters
SELECT * REPLACE (now64(9, 'UTC') AS replayed_at, now64(6, 'UTC') AS written_at)
FROM dead_letters FINAL
WHERE dead_letter_id = {dead_letter_id:String} AND toUnixTimestamp64Nano(received_at) = {received_ns:Int64}
