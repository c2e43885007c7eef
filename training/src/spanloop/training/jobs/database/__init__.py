"""The control database: tables, schema versions, copies."""
