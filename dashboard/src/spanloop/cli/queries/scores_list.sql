-- The newest scores that are not deleted, of one trace, response, session or episode; of all when all filters are empty.
-- Joins: local by score.
SELECT
    score_id,
    name,
    value,
    label,
    comment,
    source,
    trace_id,
    span_id,
    response_id,
    session_id,
    episode_key,
    task_id,
    scored_at
FROM scores FINAL
PREWHERE concat({trace_id:String}, {response_id:String}, {session_id:String}, {episode_id:String}) = ''
    OR score_id IN (
        SELECT score_id
        FROM scores
        WHERE ({trace_id:String} = '' OR trace_id = {trace_id:String})
            AND ({response_id:String} = '' OR response_id = {response_id:String})
            AND ({session_id:String} = '' OR session_id = {session_id:String})
            AND ({episode_id:String} = '' OR episode_key = {episode_id:String} OR trace_id = {episode_id:String})
    )
WHERE is_deleted = 0
    AND ({trace_id:String} = '' OR trace_id = {trace_id:String})
    AND ({response_id:String} = '' OR response_id = {response_id:String})
    AND ({session_id:String} = '' OR session_id = {session_id:String})
    AND ({episode_id:String} = '' OR episode_key = {episode_id:String} OR trace_id = {episode_id:String})
ORDER BY scored_at DESC, score_id
LIMIT {limit:UInt32}
