-- One current episode of each group: a success before a failure, then by reward, then the newest.
-- Joins: global.
SELECT
    group_id,
    argMax(episode_id, rank) AS episode_ids,
    argMax(revision, rank) AS revisions
FROM (
    SELECT
        group_id, episode_id, revision,
        (outcome = 'success', ifNull(reward, -inf), started_at, episode_id) AS rank
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
        AND startsWith(task_id, {task_prefix:String})
        AND ({service:String} = '' OR service_name = {service:String})
        AND ({mark:String} = '' OR has(marks, {mark:String}))
        AND (
            {data_set:String} = ''
            OR episode_id IN (
                SELECT episode_id
                FROM data_set_episodes
                WHERE data_set_id IN (
                    SELECT data_set_id
                    FROM data_sets FINAL
                    WHERE concat(name, '@v', toString(version)) = {data_set:String}
                    ORDER BY created_at, data_set_id
                    LIMIT 1
                )
            )
        )
        AND started_at >= {since:DateTime64(9, 'UTC')}
)
GROUP BY group_id
ORDER BY group_id
