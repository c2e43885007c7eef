-- The model calls whose sampled tokens the given jobs trained on, each job until its step in last_steps; those trained on most often first.
-- spans: how many there are without the limit. A row of an earlier converter, without trained_steps, counts for all calls of its episode.
-- Joins: global.
WITH samples AS (
    SELECT
        job_id, episode_id, revision, any(policy_version) AS policy_version, trained_steps,
        count() AS times, min(step) AS first_step, max(step) AS last_step, avg(advantage) AS advantage
    FROM training_samples FINAL
    WHERE job_id IN {job_ids:Array(String)}
        AND step <= transform(job_id, {job_ids:Array(String)}, {last_steps:Array(UInt32)}, toUInt32(0))
        AND (job_id, step, attempt) IN (
            SELECT job_id, step, max(attempt) FROM training_samples
            WHERE job_id IN {job_ids:Array(String)}
            GROUP BY job_id, step
        )
    GROUP BY job_id, episode_id, revision, row_number, trained_steps
)
SELECT
    s.job_id AS job_id,
    t.trace_id AS trace_id,
    t.span_id AS span_id,
    t.episode_id AS episode_id,
    t.revision AS revision,
    t.step AS episode_step,
    s.policy_version AS policy_version,
    s.times AS times,
    s.first_step AS first_step,
    s.last_step AS last_step,
    s.advantage AS advantage,
    count() OVER () AS spans
FROM samples AS s
INNER JOIN (
    SELECT episode_id, revision, step, trace_id, span_id
    FROM transition_rows FINAL
    WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM samples)
) AS t ON t.episode_id = s.episode_id AND t.revision = s.revision
WHERE empty(s.trained_steps) OR has(s.trained_steps, t.step)
ORDER BY times DESC, job_id, episode_id, episode_step
LIMIT {max_rows:UInt64}
