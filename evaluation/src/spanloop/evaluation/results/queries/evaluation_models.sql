-- The policy versions of current episodes, in the order in which they first appeared.
SELECT policy_version, count() AS episodes
FROM episode_summaries FINAL
WHERE is_deleted = 0 AND policy_version != ''
GROUP BY policy_version
ORDER BY min(started_at), policy_version
