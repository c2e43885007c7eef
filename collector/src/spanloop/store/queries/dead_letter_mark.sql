-- Marks a dead letter as replayed: a newer row of the same id.
INSERT INTO dead_letters
SELECT * REPLACE (now64(9, 'UTC') AS replayed_at, now64(6, 'UTC') AS written_at)
FROM dead_letters FINAL
WHERE dead_letter_id = {dead_letter_id:String}
