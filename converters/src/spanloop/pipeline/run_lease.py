"""The lease of a pipeline run: one run converts at a time, across all processes and machines that share the store.

The slower of two concurrent runs would restore episodes that the faster one has joined. ClickHouse has no
compare-and-set, so the lease is a row that the last writer owns. A run writes it and reads it back; a thread renews it
while the run works, however long a batch takes. Other pipelines convert under the lease of a run that shares its work
(`spanloop.pipeline.sharing`): they follow it.

Invariant: a run that lost its lease (its process or ClickHouse hung for ``LEASE_TIMEOUT_S``, or two runs took a free
lease at the same instant) notices before it saves a watermark, waits for the other run and repeats its work. It also
writes no further rows: before each write it knows, by its own clock, that the lease cannot have expired. A shared lease
is not free before it has expired, because the pipelines that follow it may outlive its holder.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.foundation.leases import Lease, LeaseLostError, StoredLease
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.store import Store

NAME: Final = "turn"
LEASE_TIMEOUT_S: Final = 15.0
"""A lease that was not renewed for so long is free: by then a second pipeline takes over from one that died."""
RENEW_S: Final = 4.0

MARGIN: Final = 0.2
"""A run does not write in the last fifth of its lease, so that a write ends before another run begins."""
SETTLE_S: Final = 1.0
"""Time that the inserts which a dead process had sent may still take."""
_SHARED: Final = "shared "
"""Begins the owner of a shared lease."""
_NO_TOKEN: Final = 0
_log: Final = logging.getLogger("pipeline")


class LeaseRow:
    """The lease as a row of ClickHouse; it has no fencing token, so the owner is compared."""

    def __init__(self, store: Store, owner: str, duration_s: float) -> None:
        self.duration_s: Final = duration_s
        self._store = store
        self._owner = owner
        self._is_shared = False
        self._lock = threading.Lock()
        self._server_ahead_s = 0.0

    def read(self) -> StoredLease:
        """Return who holds it; a thread that lost ClickHouse while it held the lease may take it again at once.

        That is not so for a shared lease, under which other pipelines may write until it expires.
        """
        owner, age_s = self._read()
        if owner == self._owner:
            return StoredLease("", 0.0)
        return StoredLease(owner, self.duration_s - age_s)

    def take(self) -> int | None:
        """Write the row and read it back."""
        self._write(self._value)
        return _NO_TOKEN if self._is_owner() else None

    def renew(self, token: int) -> bool:
        """Write the row again if this thread still owns it."""
        del token
        with self._lock:
            if not self._is_owner():
                return False
            self._write(self._value)
            return True

    def release(self, token: int) -> None:
        """Write a row without an owner if this thread owns it."""
        del token
        if self._is_owner():
            self._write("")

    def share(self, *, is_shared: bool) -> bool:
        """Write whether other pipelines follow the lease; return False when another run has it."""
        with self._lock:
            self._is_shared = is_shared
        return self.renew(_NO_TOKEN)

    @property
    def shared_value(self) -> str:
        """The owner of the row while the lease is shared."""
        return _SHARED + self._owner

    def to_server_us(self, monotonic_s: float) -> int:
        """Return a monotonic time of this process by the server's clock, or a little earlier, in microseconds."""
        return int((monotonic_s + self._server_ahead_s) * 1e6)

    @property
    def _value(self) -> str:
        return self.shared_value if self._is_shared else self._owner

    def _is_owner(self) -> bool:
        return self._read()[0].removeprefix(_SHARED) == self._owner

    def _read(self) -> tuple[str, float]:
        rows = self._store.query("pipeline_run_lease", name=NAME)
        if rows.is_empty():
            return "", 0.0
        self._server_ahead_s = int(rows.item(0, "now_us")) / 1e6 - time.monotonic()
        return str(rows.item(0, "owner")), float(rows.item(0, "age_s"))

    def _write(self, value: str) -> None:
        self._store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [value]}))


class RunLease(Lease):
    """The lease of a run, as the run sees it."""

    def __init__(self, store: Store, owner: str, duration_s: float) -> None:
        self._row = LeaseRow(store, owner, duration_s)
        super().__init__("pipeline run", self._row, margin_s=duration_s * MARGIN, settle_s=SETTLE_S)

    @property
    def shared_owner(self) -> str:
        """The holder that other pipelines follow."""
        return self._row.shared_value

    def share(self, *, is_shared: bool) -> None:
        """Let other pipelines follow the lease, or end that.

        Raises:
            LeaseLostError: Another run has it.
        """
        if not self._row.share(is_shared=is_shared):
            self.lose()
            raise LeaseLostError("The lease of the pipeline run is lost: another process has taken it.")

    def to_server_us(self, monotonic_s: float) -> int:
        """Return a monotonic time of this process by ClickHouse's clock, or a little earlier, in microseconds."""
        return self._row.to_server_us(monotonic_s)


class FollowedLease:
    """The shared lease of another run, under which this pipeline converts.

    Args:
        store: The store.
        owner: The holder.
    """

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._held_s = LEASE_TIMEOUT_S * (1 - MARGIN)
        self._server_ahead_s = 0.0
        self.ends_s = -float("inf")
        """Until when this process may write, by its monotonic clock, if the lease is not read again."""

    def check(self) -> None:
        """Check that its holder has it; read it again when half of the known time has passed.

        Raises:
            LeaseLostError: It ended.
        """
        if self.ends_s - time.monotonic() < self._held_s / 2:
            self.renew()

    def to_server_us(self, monotonic_s: float) -> int:
        """Return a monotonic time of this process by ClickHouse's clock, or a little earlier, in microseconds."""
        return int((monotonic_s + self._server_ahead_s) * 1e6)

    def renew(self) -> None:
        """Read it again; it raises as `check`."""
        began_s = time.monotonic()
        rows = self._store.query("pipeline_run_lease", name=NAME)
        if not rows.is_empty() and rows.item(0, "owner") == self._owner:
            self._server_ahead_s = int(rows.item(0, "now_us")) / 1e6 - time.monotonic()
            self.ends_s = began_s + self._held_s - float(rows.item(0, "age_s"))
            if self.ends_s > time.monotonic():
                return
        raise LeaseLostError("The run whose work this pipeline shared has ended, or has lost its lease.")


@contextmanager
def acquire(
    store: Store,
    should_stop: Callable[[], bool] = lambda: False,
    meanwhile: Callable[[str], None] = lambda _: None,
) -> Generator[RunLease]:
    """Wait for the lease and hold it while the block runs.

    Args:
        store: The store.
        should_stop: Asked again and again whether to give the wait up.
        meanwhile: Called again and again with the holder of a shared lease, during the wait.

    Raises:
        WaitStoppedError: ``should_stop`` said so.
        StoreError: ClickHouse refused or is unreachable.
    """
    lease = RunLease(store, this_owner(), LEASE_TIMEOUT_S)

    def wait_with(owner: str) -> None:
        if owner.startswith(_SHARED):
            meanwhile(owner)

    lease.wait(should_stop, on_wait=_report_wait, meanwhile=wait_with)
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
