-- Number of episodes of a version of a data set by each value of service, agent, model, version, outcome, failure class and judged.
-- Joins: global.
SELECT pair.1 AS field, pair.2 AS value, count() AS episodes
FROM (
    SELECT arrayJoin([
        ('outcome', toString(outcome)),
        ('service', toString(service_name)),
        ('agent', toString(if(agent_name = '', service_name, agent_name))),
        ('model', toString(model)),
        ('policy', toString(policy_version)),
        ('owner', toString(fault_owner)),
        ('class', toString(error_class)),
        ('judged', if(episode_id IN (
            SELECT episode_id
            FROM (
                SELECT episode_id, is_withdrawn
                FROM judgements FINAL
                WHERE episode_id IN (SELECT episode_id FROM data_set_episodes WHERE data_set_id = {data_set_id:String})
                ORDER BY judged_at DESC, judgement_id DESC
                LIMIT 1 BY scope, trace_id, span_id, fingerprint, judged_by
            )
            WHERE is_withdrawn = 0
        ), 'yes', 'no'))
    ]) AS pair
    FROM data_set_episodes FINAL
    WHERE data_set_id = {data_set_id:String}
)
GROUP BY field, value
ORDER BY field, episodes DESC, value
