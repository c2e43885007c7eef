SELECT count() AS failed
FROM episodes FINAL
WHERE is_deleted = 0
    AND agent_name = 'agent-1'
    AND outcome = 'failure'
