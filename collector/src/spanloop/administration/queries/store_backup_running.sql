-- Backups that are running on the server.
SELECT id FROM system.backups WHERE status = 'CREATING_BACKUP'
