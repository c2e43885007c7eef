-- The episode revisions of a version of a data set, as they were when they were added.
SELECT * EXCEPT (data_set_id) FROM data_set_episodes FINAL WHERE data_set_id = {data_set_id:String} ORDER BY group_id, episode_id
