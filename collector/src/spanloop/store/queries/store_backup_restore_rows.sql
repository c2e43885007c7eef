-- Puts a backup's rows into the tables that were made of it; answers with the id.
RESTORE DATABASE spanloop FROM File('current/clickhouse') ASYNC
