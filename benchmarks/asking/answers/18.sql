-- A score is on an episode by one of its traces, or by its key.
WITH live AS (
    SELECT trace_ids, episode_key
    FROM episodes FINAL
    WHERE is_deleted = 0
        AND service_name = 'service-1'
)
SELECT score_id, value, comment
FROM scores FINAL
WHERE is_deleted = 0
    AND name = 'helpful'
    AND (
        trace_id IN (SELECT arrayJoin(trace_ids) FROM live)
        OR episode_key IN (SELECT episode_key FROM live WHERE episode_key != '')
    )
ORDER BY scored_at DESC, score_id
LIMIT 20
