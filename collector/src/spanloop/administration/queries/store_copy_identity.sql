-- Unique id of the store.
SELECT toString(uuid) AS identity FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'
