-- How a shadow candidate compares with the champion over the calls that both got, in one row.
SELECT
    count() AS calls,
    countIf(error != '') AS errors,
    countIf(agreement = 'same') AS same,
    countIf(agreement = 'same_tools') AS same_tools,
    countIf(agreement = 'different') AS different,
    countIf(error = '' AND is_valid) AS valid,
    countIf(error = '' AND champion_is_valid) AS champion_valid,
    quantileExactIf(0.5)(latency_s, error = '') AS latency_p50_s,
    quantileExactIf(0.5)(champion_latency_s, error = '') AS champion_latency_p50_s,
    sumIf(tokens, error = '') AS tokens,
    sumIf(champion_tokens, error = '') AS champion_tokens
FROM shadow_answers FINAL
WHERE canary_id = {canary_id:String}
