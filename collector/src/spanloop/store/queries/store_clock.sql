-- The server's version, and its clock in microseconds since the epoch.
SELECT version() AS version, toUnixTimestamp64Micro(now64(6)) AS now_us
