-- Episodes and tokens in equal time buckets since a time, oldest first.
SELECT
    toDateTime64(toStartOfInterval(toDateTime(started_at, 'UTC'), toIntervalSecond({bucket_s:UInt32}), 'UTC'), 3, 'UTC') AS bucket,
    count() AS episodes,
    countIf(outcome = 'success') AS successes,
    countIf(outcome = 'failure') AS failures,
    avg(reward) AS mean_reward,
    sum(input_tokens) AS input_tokens,
    sum(output_tokens) AS output_tokens
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND started_at >= toDateTime64({since_s:Int64}, 9, 'UTC')
GROUP BY bucket
ORDER BY bucket
