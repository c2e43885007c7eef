-- What task ids begin with, up to the first separator: the sets (test-, train-) that pages can be narrowed to.
SELECT toString(task_set) AS prefix, count() AS episodes
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND task_set != ''
GROUP BY prefix
ORDER BY episodes DESC, prefix
LIMIT {max_rows:UInt32}
