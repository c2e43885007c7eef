-- The column words is the message with its JSON escapes of white space taken out.
SELECT uniqExact(episode_id) AS episodes
FROM episode_messages FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND match(
        lowerUTF8(words),
        concat('(^|[^\\p{L}\\p{N}])', regexpQuoteMeta(lowerUTF8({word:String})), '($|[^\\p{L}\\p{N}])')
    )
