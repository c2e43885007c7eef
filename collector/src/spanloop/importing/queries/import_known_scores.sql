-- The values of the given scores, including deleted ones.
SELECT score_id, value
FROM scores FINAL
PREWHERE score_id IN {score_ids:Array(String)}
