-- Holder of the pipeline's run lease (empty: none), and seconds since its last renewal by the server's clock.
SELECT
    value AS owner,
    (toUnixTimestamp64Micro(now64(6, 'UTC')) - toUnixTimestamp64Micro(updated_at)) / 1e6 AS age_s
FROM pipeline_state FINAL
WHERE name = {name:String}
