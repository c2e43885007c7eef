-- The text around the first place with one of the words, in one message, action or failure of each episode.
SELECT episode_id, argMin(text, rank) AS text
FROM (
    SELECT episode_id, 0 AS rank, message AS text FROM failures
    WHERE episode_id IN {episode_ids:Array(String)} AND multiSearchAnyCaseInsensitiveUTF8(message, {words:Array(String)})
    LIMIT 1 BY episode_id
    UNION ALL
    SELECT episode_id, 1 AS rank, message AS text FROM episode_messages
    WHERE episode_id IN {episode_ids:Array(String)} AND multiSearchAnyCaseInsensitiveUTF8(message, {words:Array(String)})
    LIMIT 1 BY episode_id
    UNION ALL
    SELECT episode_id, 2 AS rank, action AS text FROM transition_rows
    WHERE episode_id IN {episode_ids:Array(String)} AND multiSearchAnyCaseInsensitiveUTF8(action, {words:Array(String)})
    LIMIT 1 BY episode_id
)
GROUP BY episode_id
