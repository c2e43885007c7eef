"""Leases: one process of several holds a job or a role for a time, which it renews; a store keeps who holds it.

``lease`` acquires, renews, loses and releases; ``heartbeat`` renews in a thread; ``fence`` refuses the writes of a
former holder. Where the lease is kept (a row of a control database or of ClickHouse, a file) is the caller's.
"""

from .fence import Fence
from .heartbeat import Heartbeat
from .lease import Lease, LeaseLostError, LeaseStore, StoredLease, Term, WaitStoppedError, has_ended

__all__ = [
    "Fence",
    "Heartbeat",
    "Lease",
    "LeaseLostError",
    "LeaseStore",
    "StoredLease",
    "Term",
    "WaitStoppedError",
    "has_ended",
]
