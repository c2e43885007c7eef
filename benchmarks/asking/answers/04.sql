SELECT count() AS episodes
FROM episodes FINAL
WHERE is_deleted = 0
    AND started_at >= toDateTime64({start_s:Int64}, 9, 'UTC')
    AND started_at < toDateTime64({end_s:Int64}, 9, 'UTC')
    AND reward >= 0.5
