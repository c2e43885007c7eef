-- The calls of a canary by arm: sessions, calls, errors, median and 95th percentile of the latency, tokens of a call.
SELECT
    arm,
    uniqExact(session) AS sessions,
    count() AS calls,
    countIf(error != '') AS errors,
    quantileExact(0.5)(duration_ns) / 1e9 AS latency_p50_s,
    quantileExact(0.95)(duration_ns) / 1e9 AS latency_p95_s,
    avg(prompt_tokens + response_tokens) AS tokens
FROM canary_calls FINAL
WHERE canary_id = {canary_id:String}
GROUP BY arm
ORDER BY arm
