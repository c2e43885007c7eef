SELECT
    name,
    count() AS number,
    avg(value) AS mean,
    min(value) AS lowest,
    max(value) AS highest
FROM scores FINAL
WHERE is_deleted = 0
GROUP BY name
ORDER BY number DESC, name
LIMIT 20
