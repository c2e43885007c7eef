-- The messages that the policy saw, of words by Zipf's law: word r of 200,000 occurs 1 / r as often as word 1. Each message has
-- about 3 kB and an id of its own.
INSERT INTO episode_messages (episode_id, revision, number, message)
WITH
    intDiv(number, 4) AS e,
    number % 4 AS k,
    (
        SELECT groupArray(concat(
            substring('bcdfghjklmnprstvz', 1 + number % 17, 1), substring('aeiou', 1 + intDiv(number, 17) % 5, 1),
            substring('bdgklmnprst', 1 + intDiv(number, 85) % 11, 1), substring('aeiou', 1 + intDiv(number, 935) % 5, 1),
            if(number < 4675, '', concat(substring('dlmnrst', 1 + intDiv(number, 4675) % 7, 1), toString(intDiv(number, 32725))))
        ))
        FROM (SELECT number FROM numbers(200000) ORDER BY number)
    ) AS words
SELECT
    lower(hex(sipHash128('trace', e))), intDiv({base_ns:Int64} + e * {step_ns:Int64}, 1000) + 9000000, k,
    concat(
        '{"role":"user","parts":[{"type":"text","content":"call_', lower(hex(sipHash64('id', number))), ' ',
        arrayStringConcat(arrayMap(
            at -> words[toUInt32(pow(200000, (sipHash64(number, at) % 1000003) / 1000003))], range(560)
        ), ' '), '"}]}'
    )
FROM numbers({first:UInt64} * 4, {episodes:UInt64} * 4)
