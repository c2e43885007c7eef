-- The newest scores that are not deleted; fewer than requested when most of the newest rows have been replaced or deleted.
-- Only rows from the oldest candidate on are read, and of their replacements only rows that were ingested later: the last
-- write wins.
-- Joins: local by score.
WITH
    (
        SELECT min(scored_at) FROM (SELECT scored_at FROM scores ORDER BY scored_at DESC LIMIT 200 + 4 * {limit:UInt32})
    ) AS oldest,
    (SELECT min(ingested_at) FROM scores WHERE scored_at >= oldest) AS since
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
FROM (
    SELECT *
    FROM scores
    WHERE ingested_at >= since AND score_id IN (SELECT score_id FROM scores WHERE scored_at >= oldest)
    ORDER BY ingested_at DESC
    LIMIT 1 BY score_id
)
WHERE is_deleted = 0 AND scored_at >= oldest
ORDER BY scored_at DESC, score_id
LIMIT {limit:UInt32}
