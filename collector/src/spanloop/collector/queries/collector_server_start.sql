-- When the server started, in seconds since the epoch by its own clock, and how many inserts with a block's tokens it runs now.
-- Of several servers the last start, and the inserts of all.
-- System tables: of all servers.
SELECT
    (SELECT max(toInt64(toUnixTimestamp(now())) - toInt64(uptime())) FROM system.one) AS started_s,
    (
        SELECT count() FROM system.processes
        WHERE startsWith(Settings['insert_deduplication_token'], {block_id:String})
    ) AS running_inserts
