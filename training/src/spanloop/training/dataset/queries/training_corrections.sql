-- The right answers that people wrote about the traces of the given episode revisions (two parallel lists), newest first; of one person and target the newest.
-- judged_episode_id, step: as the person saw them. arrived_us: microseconds since the epoch.
-- Joins: global.
SELECT
    episodes.episode_id AS episode_id, judged.scope AS scope, judged.judged_episode_id AS judged_episode_id,
    judged.step AS step, judged.trace_id AS trace_id, judged.span_id AS span_id, judged.correction AS correction,
    toUnixTimestamp64Micro(judged.ingested_at) AS arrived_us
FROM (
    SELECT
        toString(scope) AS scope, episode_id AS judged_episode_id, step, trace_id, span_id, correction, judged_at,
        judgement_id, ingested_at, is_withdrawn
    FROM judgements FINAL
    ORDER BY judged_at DESC, judgement_id DESC
    LIMIT 1 BY scope, trace_id, span_id, fingerprint, judged_by
) AS judged
INNER JOIN (
    SELECT DISTINCT episode_id, trace_id
    FROM transition_rows
    WHERE (episode_id, revision) IN (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})))
        AND trace_id IN (SELECT trace_id FROM judgements WHERE correction != '')
) AS episodes ON episodes.trace_id = judged.trace_id
WHERE judged.is_withdrawn = 0 AND judged.correction != ''
ORDER BY judged_at DESC, judgement_id DESC
