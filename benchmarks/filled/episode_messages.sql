-- The messages that the policy saw: one for each of an episode's four steps.
INSERT INTO episode_messages (episode_id, revision, number, message)
WITH
    intDiv(number, 4) AS e,
    number % 4 AS k,
    e * 10 + 1 + 2 * k AS span,
    'Look the order up, say what it costs, and ask before anything is cancelled; never guess a number that a tool can tell. ' AS phrase,
    substring(repeat(phrase, 12), 1 + sipHash64(span) % 100, 500 + sipHash64(span) % 600) AS heard
SELECT
    lower(hex(sipHash128('trace', e))), intDiv({base_ns:Int64} + e * {step_ns:Int64}, 1000) + 9000000, k,
    concat('{"role":"user","parts":[{"type":"text","content":"', heard, '"}]}')
FROM numbers({first:UInt64} * 4, {episodes:UInt64} * 4)
