-- The judgements of people about the given traces, every version.
SELECT
    judgement_id, scope, step, trace_id, span_id, fingerprint, verdict, fault_owner, category, number, comment, judged_by,
    judged_at, is_withdrawn, ingested_at
FROM judgements FINAL
WHERE trace_id IN {trace_ids:Array(String)}
