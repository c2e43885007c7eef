-- Number of counted episodes of one stored evaluation with an unrecovered failure, by class.
SELECT class AS error_class, count() AS episodes, countIf(e.error_class = class) AS decided
FROM evaluation_episodes AS e FINAL
ARRAY JOIN error_classes AS class
WHERE evaluation_id = {evaluation_id:String} AND evaluation_revision = {evaluation_revision:UInt64} AND left_out = ''
GROUP BY class
ORDER BY episodes DESC, class
