-- The sessions that looks at a canary have counted, in their order in the test.
SELECT position, session, arm, figures, owners, started_at
FROM canary_sessions FINAL
WHERE canary_id = {canary_id:String}
ORDER BY position
