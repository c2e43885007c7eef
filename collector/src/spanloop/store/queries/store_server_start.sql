-- The server's host, and when it started, in seconds since the epoch by its own clock.
SELECT hostName() AS host, toInt64(toUnixTimestamp(now())) - toInt64(uptime()) AS started_s
