-- Makes the tables that a backup holds, without rows; answers with the id.
RESTORE DATABASE spanloop FROM File('current/clickhouse') SETTINGS structure_only = 1 ASYNC
