-- The judgements that count, newest first: of one person and target the newest version, unless it takes the judgement back. Of the given traces and episodes; of all without ids.
SELECT * EXCEPT (is_withdrawn, ingested_at)
FROM (
    SELECT *
    FROM judgements FINAL
    WHERE (empty({trace_ids:Array(String)}) OR trace_id IN {trace_ids:Array(String)})
        AND (empty({episode_ids:Array(String)}) OR episode_id IN {episode_ids:Array(String)})
    ORDER BY judged_at DESC, judgement_id DESC
    LIMIT 1 BY scope, trace_id, span_id, fingerprint, judged_by
)
WHERE is_withdrawn = 0
ORDER BY judged_at DESC, judgement_id DESC
LIMIT {max_rows:UInt64}
