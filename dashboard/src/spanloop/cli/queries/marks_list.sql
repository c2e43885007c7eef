-- The marks of current episodes, the most frequent first.
SELECT label, count() AS episodes, max(started_at) AS newest
FROM (
    SELECT arrayJoin(marks) AS label, started_at
    FROM episode_summaries FINAL
    WHERE is_deleted = 0
)
GROUP BY label
ORDER BY episodes DESC, label
