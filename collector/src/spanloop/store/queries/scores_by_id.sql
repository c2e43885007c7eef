-- The scores with the given keys, including deleted ones.
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
    scored_at,
    is_deleted
FROM scores FINAL
PREWHERE score_id IN {score_ids:Array(String)}
