-- Sessions of a canary that no look has counted, with their figures. They have a reward or an outcome, or a call that failed, and
-- their last call began before {settled_before}. An episode belongs to the session of its calls' responses.
-- Joins: global.
WITH
    calls AS (
        SELECT session, arm, response_id, error, prompt_tokens, response_tokens, started_at, duration_ns
        FROM canary_calls FINAL
        WHERE canary_id = {canary_id:String}
            AND session NOT IN (SELECT session FROM canary_sessions WHERE canary_id = {canary_id:String})
    ),
    calls_of_sessions AS (
        SELECT
            session,
            argMin(arm, started_at) AS arm,
            min(started_at) AS first_call,
            toFloat64(sum(duration_ns)) / 1e9 AS latency_s,
            toFloat64(sum(prompt_tokens + response_tokens)) AS tokens,
            toFloat64(count()) AS steps,
            max(error != '') AS is_failed
        FROM calls
        GROUP BY session
        HAVING max(started_at) < {settled_before:DateTime64(6, 'UTC')}
    ),
    episodes_of_sessions AS (
        SELECT DISTINCT calls.session AS session, step.episode_id AS episode_id, step.revision AS revision
        FROM calls
        INNER JOIN (
            SELECT response_id, episode_id, revision
            FROM transition_rows
            WHERE response_id IN (SELECT response_id FROM calls WHERE response_id != '')
        ) AS step ON step.response_id = calls.response_id
    ),
    current AS (
        SELECT episode_id, revision, outcome, reward
        FROM episode_summaries FINAL
        WHERE is_deleted = 0 AND episode_id IN (SELECT episode_id FROM episodes_of_sessions)
    ),
    owners_of_episodes AS (
        SELECT episode_id, revision, groupUniqArray(toString(fault_owner)) AS owners
        FROM failures FINAL
        WHERE NOT is_recovered AND (episode_id, revision) IN (SELECT episode_id, revision FROM current)
        GROUP BY episode_id, revision
    ),
    outcomes AS (
        SELECT
            e.session AS session,
            countIf(current.outcome IN ('success', 'failure')) AS judged,
            avgIf(current.outcome = 'success', current.outcome IN ('success', 'failure')) AS success,
            avg(current.reward) AS reward,
            arraySort(groupUniqArrayArray(owners_of_episodes.owners)) AS owners
        FROM episodes_of_sessions AS e
        INNER JOIN current ON current.episode_id = e.episode_id AND current.revision = e.revision
        LEFT JOIN owners_of_episodes
            ON owners_of_episodes.episode_id = e.episode_id AND owners_of_episodes.revision = e.revision
        GROUP BY session
    )
SELECT
    s.session AS session,
    s.arm AS arm,
    s.first_call AS started_at,
    s.is_failed AS is_failed,
    s.latency_s AS latency_s,
    s.tokens AS tokens,
    s.steps AS steps,
    if(outcomes.judged > 0, toNullable(outcomes.success), NULL) AS success,
    outcomes.reward AS reward,
    outcomes.owners AS owners
FROM calls_of_sessions AS s
LEFT JOIN outcomes ON outcomes.session = s.session
WHERE s.is_failed OR outcomes.judged > 0 OR outcomes.reward IS NOT NULL
ORDER BY started_at, session
