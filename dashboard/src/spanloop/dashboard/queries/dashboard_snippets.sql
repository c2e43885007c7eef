-- One failure, message or action of each episode that has all the words, or the part of a word; a failure first.
SELECT episode_id, argMin(text, rank) AS text
FROM (
    SELECT episode_id, 0 AS rank, message AS text FROM failures
    WHERE episode_id IN {episode_ids:Array(String)}
        AND if({part:String} = '', hasAllTokens(words, {words:Array(String)}), positionCaseInsensitiveUTF8(message, {part:String}) > 0)
    LIMIT 1 BY episode_id
    UNION ALL
    SELECT episode_id, 1 AS rank, message AS text FROM episode_messages
    WHERE episode_id IN {episode_ids:Array(String)}
        AND if({part:String} = '', hasAllTokens(words, {words:Array(String)}), positionCaseInsensitiveUTF8(message, {part:String}) > 0)
    LIMIT 1 BY episode_id
    UNION ALL
    SELECT episode_id, 2 AS rank, action AS text FROM transition_rows
    WHERE episode_id IN {episode_ids:Array(String)}
        AND if({part:String} = '', hasAllTokens(words, {words:Array(String)}), positionCaseInsensitiveUTF8(action, {part:String}) > 0)
    LIMIT 1 BY episode_id
)
GROUP BY episode_id
