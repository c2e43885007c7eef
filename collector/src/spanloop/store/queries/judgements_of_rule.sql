-- The judgements that count and can be compared with one rule, as judgements_rules.sql counts them, disagreements first.
SELECT
    judged_at, judgement_id, episode_id, scope, step, verdict, fault_owner, category, judged_by, comment,
    rule_owner, rule_class, rule_outcome,
    multiIf(
        rule != '', verdict = 'good'
            OR (fault_owner != '' AND fault_owner != rule_owner)
            OR (category != '' AND verdict = '' AND category != rule_class),
        scope = 'episode', verdict != if(rule_outcome = 'success', 'good', 'bad'),
        verdict = 'bad'
    ) AS differs
FROM (
    SELECT *
    FROM judgements FINAL
    ORDER BY judged_at DESC, judgement_id DESC
    LIMIT 1 BY scope, trace_id, span_id, fingerprint, judged_by
)
WHERE is_withdrawn = 0
    AND (verdict != '' OR (rule != '' AND category != ''))
    AND (rule != '' OR scope = 'step' OR rule_outcome IN ('success', 'failure'))
    AND multiIf(rule != '', toString(rule), scope = 'episode', 'outcome', 'no failure') = {rule:String}
ORDER BY differs DESC, judged_at DESC, judgement_id
LIMIT 500
