-- For every seventh episode an earlier revision that was replaced, with another outcome and a failure of its own.
INSERT INTO episodes
SELECT * REPLACE (
    revision - 1000 AS revision, if(outcome = 'success', 'failure', 'success') AS outcome, 100 AS reward,
    now64(6, 'UTC') AS converted_at
)
FROM episodes FINAL
WHERE cityHash64(episode_id) % 7 = 0;

INSERT INTO failures
SELECT * REPLACE (
    revision - 1000 AS revision, concat(failure_id, '-replaced') AS failure_id, now64(6, 'UTC') AS converted_at
)
FROM failures FINAL
WHERE cityHash64(episode_id) % 7 = 0;

-- Every ninety-seventh episode was merged into another one.
INSERT INTO episodes
SELECT * REPLACE (revision + 1000 AS revision, 1 AS is_deleted, now64(6, 'UTC') AS converted_at)
FROM episodes FINAL
WHERE cityHash64(episode_id) % 97 = 1;

-- Scores of every third episode, by its trace or by its key; one in eleven was taken back.
INSERT INTO scores (
    score_id, name, value, label, comment, source, trace_id, span_id, response_id, session_id, episode_key, task_id,
    scored_at, is_deleted
)
SELECT
    concat('score-', episode_id), if(cityHash64(episode_id) % 2 = 0, 'helpful', 'correct'),
    cityHash64(episode_id) % 5 / 4, '', 'given by a user', 'api', trace_ids[1], '', '', '', '', task_id,
    started_at + toIntervalSecond(60), cityHash64(episode_id) % 11 = 0
FROM episodes FINAL
WHERE cityHash64(episode_id) % 3 = 0
