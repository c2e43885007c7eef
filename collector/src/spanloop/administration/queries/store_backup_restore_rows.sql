-- Restore a backup's rows into the tables that were created from it; returns the id.
RESTORE DATABASE spanloop FROM File('current/clickhouse') ASYNC
