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
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError
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
_POLL_S: Final = 0.2
_QUIET_S: Final = 2.0
"""A wait that is not logged."""
_log: Final = logging.getLogger("pipeline")


class RunLeaseLostError(Exception):
    """Another run took the lease; rows that this run has read may be out of date."""


class RunLease:
    """The right to write conversions, until another run takes it."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._valid_until_s = 0.0
        self._released = threading.Event()
        self._renewal = threading.Thread(target=self._renew_until_released, name="run-lease", daemon=True)

    def check(self) -> None:
        """Check before a write that the lease is valid; it asks ClickHouse only when the lease was not renewed in time.

        Raises:
            RunLeaseLostError: Another run has the lease.
            StoreError: ClickHouse refused or is unreachable.
        """
        if time.monotonic() >= self._valid_until_s:
            self.renew()

    def renew(self) -> None:
        """Extend the lease.

        Raises:
            RunLeaseLostError: Another run has the lease.
            StoreError: ClickHouse refused or is unreachable.
        """
        began_s = time.monotonic()
        if _current_owner(self._store)[0] != self._owner:
            self._valid_until_s = 0.0
            raise RunLeaseLostError(self._owner)
        _record_owner(self._store, self._owner)
        self._valid_until_s = began_s + LEASE_TIMEOUT_S - _MARGIN_S

    @contextmanager
    def renewing(self) -> Generator[None]:
        """Renew the lease in a thread while the block runs."""
        self._renewal.start()
        try:
            yield
        finally:
            self._released.set()
            self._renewal.join()

    def _renew_until_released(self) -> None:
        while not self._released.wait(RENEW_S):
            try:
                self.renew()
            except RunLeaseLostError:
                return  # the run notices it before its next write
            except StoreError:
                continue


class WaitStoppedError(Exception):
    """The process was told to stop while it waited for the lease."""


@contextmanager
def acquire(store: Store, should_stop: Callable[[], bool] = lambda: False) -> Generator[RunLease]:
    """Wait for the lease and hold it while the block runs.

    Args:
        store: The store.
        should_stop: Asked again and again whether to give the wait up.

    Raises:
        WaitStoppedError: ``should_stop`` said so.
        StoreError: ClickHouse refused or is unreachable.
    """
    owner = this_owner()
    _wait_for_lease(store, owner, should_stop)
    try:
        lease = RunLease(store, owner)
        with lease.renewing():
            yield lease
    finally:
        if _current_owner(store)[0] == owner:
            _record_owner(store, "")


def this_owner() -> str:
    """Return the identity of this thread; one that lost ClickHouse while it held the lease still owns it afterwards."""
    return f"{ProcessIdentity.current()} {threading.get_ident()}"


def _wait_for_lease(store: Store, owner: str, should_stop: Callable[[], bool]) -> None:
    began_s, dead_since_s = time.monotonic(), None
    is_logged = False
    while True:
        current_owner, age_s = _current_owner(store)
        now_s = time.monotonic()
        dead_since_s = (dead_since_s or now_s) if _has_ended(current_owner) else None
        is_dead = dead_since_s is not None and now_s - dead_since_s >= _SETTLE_S
        if current_owner in {"", owner} or age_s > LEASE_TIMEOUT_S or is_dead:
            _record_owner(store, owner)
            if _current_owner(store)[0] == owner:
                return
        elif not is_logged and now_s - began_s > _QUIET_S:
            _log.info("waiting for the conversion that runs on (machine:process:start thread) %s", current_owner)
            is_logged = True
        if should_stop():
            raise WaitStoppedError
        time.sleep(_POLL_S)


def _has_ended(owner: str) -> bool:
    """Whether the owner is a process of this machine that has ended."""
    process = ProcessIdentity.parse(owner.rpartition(" ")[0])
    return process is not None and process.has_ended()


def _current_owner(store: Store) -> tuple[str, float]:
    """Return the lease's owner (empty when it is free) and the seconds since its last renewal."""
    rows = store.query("pipeline_run_lease", name=NAME)
    return ("", 0.0) if rows.is_empty() else (str(rows.item(0, "owner")), float(rows.item(0, "age_s")))


def _record_owner(store: Store, owner: str) -> None:
    store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [owner]}))
