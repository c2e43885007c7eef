-- Use of each tool in the counted episodes of one stored evaluation.
SELECT
    tool,
    sum(calls) AS calls,
    sum(failed_tool_calls[tool]) AS failed_calls,
    count() AS episodes,
    countIf(is_success) AS successes
FROM evaluation_episodes FINAL
ARRAY JOIN mapKeys(tool_calls) AS tool, mapValues(tool_calls) AS calls
WHERE evaluation_id = {evaluation_id:String} AND evaluation_revision = {evaluation_revision:UInt64} AND left_out = ''
GROUP BY tool
ORDER BY tool
