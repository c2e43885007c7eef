"""The control database: engines, tables, migrations, copies."""
