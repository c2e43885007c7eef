"""The spool: a durable queue of records on disk, with group commit and recovery after a crash."""

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
