-- The first revisions of legacy_transitions from an episode on, with the bytes of their states, and whether they are to be kept:
-- current ones, those without an episode, and those that a dataset or an evaluation names.
WITH
    steps AS (
        SELECT episode_id, revision, step, length(state) + length(next_state) AS size_bytes FROM legacy_transitions
        WHERE episode_id >= {from_episode_id:String}
        ORDER BY episode_id, revision, step
        LIMIT {max_steps:UInt64}
    ),
    revisions AS (
        SELECT episode_id, revision, count() AS steps, sum(size_bytes) AS size_bytes FROM steps
        GROUP BY episode_id, revision
    ),
    replaced AS (
        SELECT r.episode_id AS episode_id, r.revision AS revision
        FROM revisions AS r
        INNER JOIN (
            SELECT episode_id, revision, is_deleted FROM episodes FINAL
            WHERE episode_id IN (SELECT episode_id FROM revisions)
        ) AS e ON e.episode_id = r.episode_id
        WHERE e.revision > r.revision
            AND (r.episode_id, r.revision) NOT IN (
                SELECT episode_id, revision FROM pinned_revisions WHERE episode_id IN (SELECT episode_id FROM revisions)
            )
            AND (r.episode_id, r.revision) NOT IN (
                SELECT episode_id, revision FROM evaluation_episodes WHERE episode_id IN (SELECT episode_id FROM revisions)
            )
    )
SELECT
    episode_id, revision, steps, size_bytes,
    ((episode_id, revision) NOT IN (SELECT episode_id, revision FROM replaced))::Bool AS is_kept
FROM revisions
ORDER BY episode_id, revision
