-- Back the embedded server's database up into the folder that its configuration allows; returns the id.
BACKUP DATABASE spanloop TO File('current/clickhouse') ASYNC
