-- The judgements that count and can be compared with the rule whose verdict the person saw, disagreements first; of one rule, or of all with an empty one. "outcome" is an episode that no failure decided, "no failure" a step without one.
SELECT
    judged_at, judgement_id, episode_id, scope, step, verdict, fault_owner, category, judged_by, comment,
    rule_owner, rule_class, rule_outcome,
    multiIf(rule != '', toString(rule), scope = 'episode', 'outcome', 'no failure') AS rule_name,
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
    AND ({rule:String} = '' OR rule_name = {rule:String})
ORDER BY differs DESC, judged_at DESC, judgement_id
LIMIT {max_rows:UInt64}
