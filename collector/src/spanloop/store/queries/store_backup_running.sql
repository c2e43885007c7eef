-- Backups that the server is at.
SELECT id FROM system.backups WHERE status = 'CREATING_BACKUP'
