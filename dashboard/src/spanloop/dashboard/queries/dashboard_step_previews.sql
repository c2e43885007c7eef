-- The begin of each step's action.
SELECT episode_id, step, any(preview) AS preview
FROM transition_rows
WHERE (episode_id, revision, step) IN (
    SELECT arrayJoin(arrayZip({episode_ids:Array(String)}, {revisions:Array(UInt64)}, {steps:Array(UInt32)}))
)
GROUP BY episode_id, step
