-- Holder of the pipeline's run lease (empty: none), seconds since its last renewal, and the time (microseconds) by the server's clock.
WITH now64(6, 'UTC') AS now
SELECT
    value AS owner,
    (toUnixTimestamp64Micro(now) - toUnixTimestamp64Micro(updated_at)) / 1e6 AS age_s,
    toUnixTimestamp64Micro(now) AS now_us
FROM pipeline_state FINAL
WHERE name = {name:String}
