-- The scores of an episode, by trace or by the app's episode id.
-- Joins: local by score.
SELECT name, value, label, comment, source, span_id, response_id, scored_at
FROM scores FINAL
PREWHERE score_id IN (
        SELECT score_id
        FROM scores
        WHERE trace_id IN {trace_ids:Array(String)} OR ({episode_key:String} != '' AND episode_key = {episode_key:String})
    )
WHERE is_deleted = 0
    AND name != 'spanloop.mark'
    AND (trace_id IN {trace_ids:Array(String)} OR ({episode_key:String} != '' AND episode_key = {episode_key:String}))
ORDER BY scored_at, score_id
LIMIT 500
