-- The jobs that trained on tokens of the given trace, or of its one span, with the steps at which they did; an empty span_id means any.
-- Joins: global.
WITH calls AS (
    SELECT episode_id, revision, step, span_id
    FROM transition_rows FINAL
    WHERE trace_id = {trace_id:String} AND ({span_id:String} = '' OR span_id = {span_id:String})
)
SELECT
    s.job_id AS job_id,
    c.span_id AS span_id,
    count() AS times,
    min(s.step) AS first_step,
    max(s.step) AS last_step,
    avg(s.advantage) AS advantage
FROM (
    SELECT job_id, step, episode_id, revision, trained_steps, advantage
    FROM training_samples FINAL
    WHERE episode_id IN (SELECT episode_id FROM calls)
        AND (job_id, step, attempt) IN (SELECT job_id, step, max(attempt) FROM training_samples GROUP BY job_id, step)
) AS s
INNER JOIN calls AS c ON c.episode_id = s.episode_id AND c.revision = s.revision
WHERE empty(s.trained_steps) OR has(s.trained_steps, c.step)
GROUP BY job_id, span_id
ORDER BY job_id, span_id
