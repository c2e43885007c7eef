-- The figures of one stored evaluation.
SELECT figure, value, low, high, tasks
FROM evaluation_figures FINAL
WHERE evaluation_id = {evaluation_id:String} AND evaluation_revision = {evaluation_revision:UInt64}
ORDER BY position, figure
