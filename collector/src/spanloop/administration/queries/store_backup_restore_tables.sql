-- Create a backup's tables without rows; returns the id.
RESTORE DATABASE spanloop FROM File('current/clickhouse') SETTINGS structure_only = 1 ASYNC
