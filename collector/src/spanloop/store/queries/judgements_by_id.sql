-- The versions of judgements with the given ids.
SELECT
    judgement_id, episode_id, revision, scope, step, trace_id, span_id, fingerprint, judged_by,
    rule, rule_owner, rule_class, rule_outcome
FROM judgements FINAL
WHERE judgement_id IN {judgement_ids:Array(String)}
