-- The policy versions that acted in current episodes, the newest hundred thousand of them, in the order in which they first appeared.
SELECT policy_version, count() AS episodes
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND policy_version != ''
    AND started_at >= (
        SELECT min(started_at)
        FROM (SELECT started_at FROM episode_summaries ORDER BY started_at DESC LIMIT 100000)
    )
GROUP BY policy_version
ORDER BY min(started_at), policy_version
