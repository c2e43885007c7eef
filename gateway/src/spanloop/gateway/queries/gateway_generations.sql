-- Token ids of captured responses, one row for each choice.
SELECT
    generation_id,
    prompt_token_ids,
    response_token_ids
FROM generations
PREWHERE response_id IN {response_ids:Array(String)}
LIMIT 1 BY generation_id
