-- All rows of the captures of the gateway for the given traces or responses that started in a time range (nanoseconds), including replaced rows.
SELECT
    generation_id,
    response_id,
    choice_index,
    trace_id,
    parent_span_id,
    policy_version,
    tokenizer,
    prompt_token_ids,
    response_token_ids,
    logprobs,
    finish_reason,
    is_complete,
    sampling,
    ingested_at
FROM generations
WHERE started_at >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND started_at <= fromUnixTimestamp64Nano({until_ns:Int64}, 'UTC')
    AND (
        (trace_id != '' AND trace_id IN {trace_ids:Array(String)})
        OR (response_id != '' AND response_id IN {response_ids:Array(String)})
    )
