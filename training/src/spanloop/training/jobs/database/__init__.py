"""The control database: engines, tables, schema versions, copies."""
