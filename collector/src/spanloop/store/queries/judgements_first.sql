-- What the rules said of a span's target when somebody first judged it, by fingerprint.
SELECT fingerprint, rule, rule_owner, rule_class, rule_outcome
FROM judgements FINAL
WHERE trace_id = {trace_id:String} AND span_id = {span_id:String} AND scope = {scope:String}
ORDER BY judged_at, judgement_id
LIMIT 1 BY fingerprint
