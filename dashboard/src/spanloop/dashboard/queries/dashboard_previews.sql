-- The begin of each episode's question, the newest user message of its first step, and of its last answer.
-- Joins: global.
SELECT
    t.episode_id AS episode_id,
    any(t.model) AS model,
    argMaxIf(m.preview, m.number, m.role = 'user') AS input,
    any(t.output) AS output
FROM (
    SELECT
        episode_id,
        revision,
        any(toString(model)) AS model,
        argMax(preview, step) AS output,
        argMin(state, step) AS first_state
    FROM transition_rows FINAL
    PREWHERE (episode_id, revision) IN (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})))
    GROUP BY episode_id, revision
) AS t
LEFT JOIN (
    SELECT episode_id, revision, number, role, preview
    FROM episode_messages FINAL
    PREWHERE (episode_id, revision) IN (SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)})))
) AS m ON m.episode_id = t.episode_id AND m.revision = t.revision
WHERE m.number < arrayMax(arrayPushBack(t.first_state, 1))
GROUP BY t.episode_id
