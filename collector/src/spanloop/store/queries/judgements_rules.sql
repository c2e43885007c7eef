-- Judgements that count, by the rule whose verdict the person saw: how many agree and disagree with it, most disagreements first. "outcome" is an episode that no failure decided, "no failure" a step without one. Only what can be compared with the rule counts.
SELECT
    rule_name AS rule,
    count() AS judged,
    countIf(NOT differs) AS agreed,
    countIf(differs) AS disagreed,
    max(judged_at) AS newest
FROM (
    SELECT
        judged_at,
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
)
GROUP BY rule_name
ORDER BY disagreed DESC, judged DESC, rule_name
