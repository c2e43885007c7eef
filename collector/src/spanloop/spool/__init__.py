"""A durable queue of records on disk, with group commit (one fdatasync for many appends) and crash recovery."""

from .spool import (
    AnyRecord,
    Batch,
    Record,
    Spool,
    SpoolDamageError,
    SpoolDiskError,
    SpoolFullError,
    SpoolStats,
    StoredRecord,
)

__all__ = [
    "AnyRecord",
    "Batch",
    "Record",
    "Spool",
    "SpoolDamageError",
    "SpoolDiskError",
    "SpoolFullError",
    "SpoolStats",
    "StoredRecord",
]
