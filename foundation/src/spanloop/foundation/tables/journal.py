"""The journal of migrations."""

from typing import Final

from .column import LOW_CARDINALITY, TIME_US, Column, Table

SCHEMA_MIGRATIONS: Final = Table(
    "schema_migrations",
    (
        Column("version", "UInt32", "number of the migration"),
        Column("name", "String", "name of its file"),
        Column("checksum", "String", "first 16 hex digits of the file's SHA-256"),
        Column("state", LOW_CARDINALITY, "started or applied"),
        Column("spanloop_version", "String", "version of spanloop that ran it"),
        Column("recorded_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Which migrations ran."""
