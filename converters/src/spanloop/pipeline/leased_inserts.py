"""Insert rows that count only while leases are held.

Invariant: the leases are checked before each insert, and ClickHouse refuses a block that comes after their end. So a
process that hung between the check and the request stores nothing.
"""

from collections.abc import Sequence
from typing import Protocol

import polars as pl

from spanloop.foundation.errors import LateInsertError
from spanloop.foundation.leases import LeaseLostError
from spanloop.store import Store

from .run_lease import FollowedLease, RunLease


class HeldLease(Protocol):
    """A lease that this process holds or follows."""

    @property
    def ends_s(self) -> float:
        """Until when it is certainly held, by this process's monotonic clock."""
        ...

    def check(self) -> None:
        """Raise `LeaseLostError` if it is lost."""
        ...


class LeasedInserts:
    """Inserts into a store under leases.

    Args:
        store: The store.
        run: The lease of the run, held or followed.
        others: Further leases that have to be held.
    """

    def __init__(self, store: Store, run: RunLease | FollowedLease, others: Sequence[HeldLease] = ()) -> None:
        self._store = store
        self._run = run
        self._leases: tuple[HeldLease, ...] = (run, *others)

    def renew(self) -> None:
        """Renew the lease of the run, so that there is time for inserts; it raises `LeaseLostError` if it is lost."""
        self._run.renew()

    def insert(self, table: str, frame: pl.DataFrame) -> int:
        """Insert a frame as one block; return the number of its rows.

        Raises:
            LeaseLostError: A lease has ended; nothing is stored.
            StoreError: ClickHouse refused the block for another reason, or is unreachable.
        """
        for lease in self._leases:
            lease.check()
        until_s = min(lease.ends_s for lease in self._leases)
        try:
            return self._store.insert(table, frame, until_us=self._run.to_server_us(until_s))
        except LateInsertError as error:
            raise LeaseLostError(f"A lease ended while rows of {table!r} were sent; they were refused.") from error
