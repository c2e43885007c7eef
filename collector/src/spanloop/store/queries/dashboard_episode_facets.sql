-- What the episode filters may be set to, most frequent first.
SELECT 'policy_version' AS facet, toString(policy_version) AS value, count() AS episodes
FROM episodes FINAL WHERE is_deleted = 0 AND policy_version != '' GROUP BY value
UNION ALL
SELECT 'agent_name' AS facet, toString(agent_name) AS value, count() AS episodes
FROM episodes FINAL WHERE is_deleted = 0 AND agent_name != '' GROUP BY value
ORDER BY facet, episodes DESC, value
LIMIT 200 BY facet
