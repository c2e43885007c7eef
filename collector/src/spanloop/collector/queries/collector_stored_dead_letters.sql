-- Which of some dead letters are stored.
SELECT DISTINCT dead_letter_id
FROM dead_letters
WHERE dead_letter_id IN {dead_letter_ids:Array(String)}
