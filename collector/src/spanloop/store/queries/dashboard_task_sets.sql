-- What task ids begin with, up to the first separator: the sets (test-, train-) that pages can be narrowed to.
SELECT extract(task_id, '^[^-_/.:]+[-_/.:]') AS prefix, uniqExact(task_id) AS tasks, count() AS episodes
FROM episodes FINAL
WHERE is_deleted = 0 AND prefix != ''
GROUP BY prefix
ORDER BY episodes DESC, prefix
LIMIT {max_rows:UInt32}
