"""The lease of a pipeline run: one run converts at a time, across all processes and machines that share the store.

The slower of two concurrent runs would restore episodes that the faster one has joined. ClickHouse has no
compare-and-set, so the lease is a row that the last writer owns. A run writes it, reads it back, and renews it.

Invariant: a run that lost its lease (it did not renew for ``LEASE_TIMEOUT_S``, or two runs took a free lease at the
same instant) notices before it saves a watermark, waits for the other run and repeats its work.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import polars as pl

from spanloop.store import Store

NAME: Final = "turn"
LEASE_TIMEOUT_S: Final = 600.0
"""A lease that was not renewed for so long is free; many times the duration of a batch."""

_POLL_S: Final = 0.2
_log: Final = logging.getLogger("pipeline")


class RunLeaseLostError(Exception):
    """Another run took the lease; rows that this run has read may be out of date."""


class RunLease:
    """The right to write conversions, until another run takes it."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner

    def renew(self) -> None:
        """Extend the lease.

        Raises:
            RunLeaseLostError: Another run has the lease.
            StoreError: ClickHouse refused or is unreachable.
        """
        if _current_owner(self._store)[0] != self._owner:
            raise RunLeaseLostError(self._owner)
        _record_owner(self._store, self._owner)


@contextmanager
def acquire(store: Store) -> Generator[RunLease]:
    """Wait for the lease and hold it while the block runs.

    Raises:
        StoreError: ClickHouse refused or is unreachable.
    """
    # A thread that lost ClickHouse while it held the lease still owns it afterwards.
    owner = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    _wait_for_lease(store, owner)
    try:
        yield RunLease(store, owner)
    finally:
        if _current_owner(store)[0] == owner:
            _record_owner(store, "")


def _wait_for_lease(store: Store, owner: str) -> None:
    logged_owner = ""
    while True:
        current_owner, age_s = _current_owner(store)
        if current_owner in {"", owner} or age_s > LEASE_TIMEOUT_S or _is_dead(current_owner):
            _record_owner(store, owner)
            if _current_owner(store)[0] == owner:
                return
        elif current_owner != logged_owner:
            _log.info("waiting for the conversion that runs on (host, process, thread) %s", current_owner)
            logged_owner = current_owner
        time.sleep(_POLL_S)


def _is_dead(current_owner: str) -> bool:
    """Whether the owner is a process of this machine that has ended."""
    host, pid, _ = current_owner.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _current_owner(store: Store) -> tuple[str, float]:
    """Return the lease's owner (empty when it is free) and the seconds since its last renewal."""
    rows = store.query("pipeline_run_lease", name=NAME)
    return ("", 0.0) if rows.is_empty() else (str(rows.item(0, "owner")), float(rows.item(0, "age_s")))


def _record_owner(store: Store, owner: str) -> None:
    store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [owner]}))
