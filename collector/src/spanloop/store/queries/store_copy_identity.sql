-- What tells one store from every other one.
SELECT toString(uuid) AS identity FROM system.tables WHERE database = currentDatabase() AND name = 'schema_migrations'
