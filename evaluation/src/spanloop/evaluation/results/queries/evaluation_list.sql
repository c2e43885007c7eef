-- The stored evaluations by name, in the order in which their models were first evaluated; an empty filter matches all.
SELECT
    evaluation_id, revision, name, model, task_set, created_at, started_at, episodes, tasks,
    success, success_low, success_high, mean_reward, reward_low, reward_high,
    left_out, states, training_tasks, level, resamples, seed, parameters, converter_version
FROM evaluations FINAL
WHERE ({evaluation_id:String} = '' OR evaluation_id = {evaluation_id:String})
    AND ({name:String} = '' OR name = {name:String})
    AND ({model:String} = '' OR model = {model:String})
ORDER BY name, started_at, evaluation_id
