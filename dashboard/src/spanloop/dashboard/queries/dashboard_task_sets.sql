-- Prefixes of task ids up to the first separator (test-, train-), which pages use as a filter,
-- from the newest hundred thousand episodes.
SELECT toString(task_set) AS prefix, count() AS episodes
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND task_set != ''
    AND started_at >= (
        SELECT min(started_at)
        FROM (SELECT started_at FROM episode_summaries ORDER BY started_at DESC LIMIT 100000)
    )
GROUP BY prefix
ORDER BY episodes DESC, prefix
LIMIT {max_rows:UInt32}
