-- Progress of one backup or restore.
SELECT
    toString(status) AS status,
    error,
    total_size AS size_bytes,
    bytes_read AS read_bytes
FROM system.backups
WHERE id = {id:String}
