-- Current episodes that an export can include, by group and id, with their number of steps.
SELECT episode_id, revision, group_id, step_count
FROM episode_summaries FINAL
WHERE is_deleted = 0
    AND (empty({task_ids:Array(String)}) OR has({task_ids:Array(String)}, task_id))
    AND startsWith(task_id, {task_prefix:String})
    AND started_at >= {since:DateTime64(9, 'UTC')}
    AND started_at < {until:DateTime64(9, 'UTC')}
    AND ({policy_version:String} = '' OR policy_version = {policy_version:String})
ORDER BY group_id, episode_id
