-- Scores of the given traces, responses and named episodes, and scores of sessions that have no other target.
-- Joins: local by score.
SELECT
    score_id,
    name,
    value,
    label,
    trace_id,
    span_id,
    response_id,
    session_id,
    episode_key,
    scored_at,
    ingested_at,
    is_deleted
FROM scores FINAL
PREWHERE score_id IN (
        SELECT score_id
        FROM scores
        WHERE (trace_id != '' AND trace_id IN {trace_ids:Array(String)})
            OR (response_id != '' AND response_id IN {response_ids:Array(String)})
            OR (episode_key != '' AND episode_key IN {episode_keys:Array(String)})
            OR (session_id != '' AND session_id IN {session_ids:Array(String)}
                AND trace_id = '' AND response_id = '' AND episode_key = '')
    )
WHERE (
        (trace_id != '' AND trace_id IN {trace_ids:Array(String)})
        OR (response_id != '' AND response_id IN {response_ids:Array(String)})
        OR (episode_key != '' AND episode_key IN {episode_keys:Array(String)})
        OR (session_id != '' AND session_id IN {session_ids:Array(String)}
            AND trace_id = '' AND response_id = '' AND episode_key = '')
    )
