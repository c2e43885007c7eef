-- Steps of a version of a data set by the reason for which they cannot be trained on; empty for those that can.
-- Joins: local by episode.
SELECT toString(untrainable_reason) AS reason, count() AS steps, uniqExact(episode_id) AS episodes
FROM transition_rows FINAL
PREWHERE episode_id IN (SELECT episode_id FROM data_set_episodes WHERE data_set_id = {data_set_id:String})
WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM data_set_episodes FINAL WHERE data_set_id = {data_set_id:String})
GROUP BY reason
ORDER BY steps DESC, reason
