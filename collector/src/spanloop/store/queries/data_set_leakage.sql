-- Evaluations that share tasks or episodes with a version of a data set. episodes: those of the data set that are attempts at a shared
-- task. shared_episodes: those of the data set that the evaluation counts. Attempts that an evaluation leaves out share nothing.
-- Joins: global.
WITH members AS (
    SELECT episode_id, if(task_id = '', group_id, task_id) AS task
    FROM data_set_episodes FINAL
    WHERE data_set_id = {data_set_id:String}
)
SELECT
    v.evaluation_id AS evaluation_id, v.name AS name, v.model AS model, v.task_set AS task_set, v.tasks AS tasks,
    s.shared_tasks AS shared_tasks, s.episodes AS episodes, s.shared_episodes AS shared_episodes
FROM (
    SELECT
        evaluation_id, evaluation_revision, count() AS shared_tasks, sum(member_episodes) AS episodes,
        sum(evaluated_members) AS shared_episodes
    FROM (
        SELECT
            evaluation_id, evaluation_revision, task_id,
            countIf(episode_id IN (SELECT episode_id FROM members)) AS evaluated_members
        FROM evaluation_episodes FINAL
        WHERE left_out = '' AND task_id IN (SELECT task FROM members)
        GROUP BY evaluation_id, evaluation_revision, task_id
    ) AS x
    INNER JOIN (SELECT task, count() AS member_episodes FROM members GROUP BY task) AS m ON m.task = x.task_id
    GROUP BY evaluation_id, evaluation_revision
) AS s
INNER JOIN (SELECT evaluation_id, revision, name, model, task_set, tasks FROM evaluations FINAL) AS v
    ON v.evaluation_id = s.evaluation_id AND v.revision = s.evaluation_revision
ORDER BY episodes DESC, evaluation_id
