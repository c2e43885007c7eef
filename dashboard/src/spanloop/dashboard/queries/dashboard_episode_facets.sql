-- Values for the episode filters, most frequent first, from the newest hundred thousand episodes.
SELECT facet, value, episodes
FROM (
    SELECT
        arrayJoin([('policy_version', toString(policy_version)), ('agent_name', toString(agent_name))]) AS pair,
        pair.1 AS facet,
        pair.2 AS value,
        sum(n) AS episodes
    FROM (
        SELECT policy_version, agent_name, count() AS n
        FROM episode_summaries FINAL
        WHERE is_deleted = 0
            AND started_at >= (
                SELECT min(started_at)
                FROM (SELECT started_at FROM episode_summaries ORDER BY started_at DESC LIMIT 100000)
            )
        GROUP BY policy_version, agent_name
    )
    GROUP BY pair
)
WHERE value != ''
ORDER BY facet, episodes DESC, value
LIMIT 200 BY facet
