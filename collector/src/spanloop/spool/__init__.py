"""A durable queue of records on disk, with group commit (one fdatasync for many appends) and crash recovery."""

from .frames import AnyRecord, Record, SpoolDamageError, StoredRecord
from .journal import Batch, SpoolStats
from .spool import Spool, SpoolDiskError, SpoolFullError

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
