SELECT
    fingerprint,
    count() AS number,
    uniqExact(episode_id) AS episodes
FROM failures FINAL
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    AND fault_owner = 'policy'
    AND occurred_at >= toDateTime64({start_s:Int64}, 9, 'UTC')
    AND occurred_at < toDateTime64({end_s:Int64}, 9, 'UTC')
GROUP BY fingerprint
ORDER BY number DESC, max(occurred_at) DESC, fingerprint
LIMIT 20
