"""The lease of a pipeline run: one run converts at a time, across all processes and machines that share the store.

The slower of two concurrent runs would restore episodes that the faster one has joined. ClickHouse has no
compare-and-set, so the lease is a row that the last writer owns. A run writes it and reads it back; a thread renews it
while the run works, however long a batch takes.

Invariant: a run that lost its lease (its process or ClickHouse hung for ``LEASE_TIMEOUT_S``, or two runs took a free
lease at the same instant) notices before it saves a watermark, waits for the other run and repeats its work. It also
writes no further rows: before each write it knows, by its own clock, that the lease cannot have expired.
"""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.foundation.leases import Lease, StoredLease
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.store import Store

NAME: Final = "turn"
LEASE_TIMEOUT_S: Final = 15.0
"""A lease that was not renewed for so long is free: by then a second pipeline takes over from one that died."""
RENEW_S: Final = 4.0

_MARGIN_S: Final = 3.0
"""A run does not write in the last seconds of its lease, so that a write ends before another run begins."""
_SETTLE_S: Final = 1.0
"""Time that the inserts which a dead process had sent may still take."""
_NO_TOKEN: Final = 0
_log: Final = logging.getLogger("pipeline")


class _LeaseRow:
    """The lease as a row of ClickHouse; it has no fencing token, so the owner is compared."""

    def __init__(self, store: Store, owner: str, duration_s: float) -> None:
        self.duration_s: Final = duration_s
        self._store = store
        self._owner = owner

    def read(self) -> StoredLease:
        """Return who holds it; a thread that lost ClickHouse while it held the lease may take it again at once."""
        rows = self._store.query("pipeline_run_lease", name=NAME)
        if rows.is_empty() or rows.item(0, "owner") == self._owner:
            return StoredLease("", 0.0)
        return StoredLease(str(rows.item(0, "owner")), self.duration_s - float(rows.item(0, "age_s")))

    def take(self) -> int | None:
        """Write the row and read it back."""
        self._write(self._owner)
        return _NO_TOKEN if self._is_owner() else None

    def renew(self, token: int) -> bool:
        """Write the row again if this thread still owns it."""
        del token
        if not self._is_owner():
            return False
        self._write(self._owner)
        return True

    def release(self, token: int) -> None:
        """Write a row without an owner if this thread owns it."""
        del token
        if self._is_owner():
            self._write("")

    def _is_owner(self) -> bool:
        rows = self._store.query("pipeline_run_lease", name=NAME)
        return not rows.is_empty() and rows.item(0, "owner") == self._owner

    def _write(self, owner: str) -> None:
        self._store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [owner]}))


@contextmanager
def acquire(store: Store, should_stop: Callable[[], bool] = lambda: False) -> Generator[Lease]:
    """Wait for the lease and hold it while the block runs.

    Args:
        store: The store.
        should_stop: Asked again and again whether to give the wait up.

    Raises:
        WaitStoppedError: ``should_stop`` said so.
        StoreError: ClickHouse refused or is unreachable.
    """
    row = _LeaseRow(store, this_owner(), LEASE_TIMEOUT_S)
    lease = Lease("pipeline run", row, margin_s=_MARGIN_S, settle_s=_SETTLE_S)
    lease.wait(should_stop, on_wait=_report_wait)
    try:
        with lease.renewing(RENEW_S, tolerated=StoreError):
            yield lease
    finally:
        lease.release()


def this_owner() -> str:
    """Return the identity of this thread; one that lost ClickHouse while it held the lease still owns it afterwards."""
    return f"{ProcessIdentity.current()} {threading.get_ident()}"


def _report_wait(owner: str) -> None:
    _log.info("waiting for the conversion that runs on (machine:process:start thread) %s", owner)
