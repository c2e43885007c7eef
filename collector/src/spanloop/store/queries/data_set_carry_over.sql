-- Copy the episodes of one version to the next, without those that it already has and the given ones.
-- Joins: local by episode.
INSERT INTO data_set_episodes
SELECT {data_set_id:String}, *
FROM (
    SELECT * EXCEPT (data_set_id)
    FROM data_set_episodes FINAL
    WHERE data_set_id = {previous_id:String}
        AND episode_id NOT IN (SELECT episode_id FROM data_set_episodes WHERE data_set_id = {data_set_id:String})
        AND NOT has({without:Array(String)}, episode_id)
)
