-- Revisions that were replaced before the given time, less those that are current after all or that a dataset or an evaluation names.
-- Joins: global.
WITH replaced AS (
    SELECT episode_id, revision FROM replaced_revisions FINAL
    WHERE replaced_at <= fromUnixTimestamp64Micro({until_us:Int64}, 'UTC')
    ORDER BY episode_id, revision
)
SELECT episode_id, revision
FROM replaced
WHERE (episode_id, revision) NOT IN (
        SELECT episode_id, revision FROM episodes FINAL
        WHERE is_deleted = 0 AND episode_id IN (SELECT episode_id FROM replaced)
    )
    AND (episode_id, revision) NOT IN (
        SELECT episode_id, revision FROM pinned_revisions WHERE episode_id IN (SELECT episode_id FROM replaced)
    )
    AND (episode_id, revision) NOT IN (
        SELECT episode_id, revision FROM evaluation_episodes WHERE episode_id IN (SELECT episode_id FROM replaced)
    )
ORDER BY episode_id, revision
LIMIT {max_revisions:UInt64}
