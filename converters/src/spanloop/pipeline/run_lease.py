"""One run converts at a time, whichever processes and machines share the store.

Two runs at once would each decide from what it had read before the other wrote: the slower one would bring back
episodes that the faster one has joined. ClickHouse has no compare-and-set, so a turn is a row that the last writer
owns, written and read back, and asked for again after every batch.

Invariant: a run that has lost its turn (it was silent for ``SILENCE_S``, or two took a free turn in one instant)
finds out before it saves a watermark, waits for the other and does its work again. So a lost turn costs time only.
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
SILENCE_S: Final = 600.0
"""After this long without a word from its owner a turn is free: many times what one batch takes."""

_POLL_S: Final = 0.2
_log: Final = logging.getLogger("pipeline")


class TurnLostError(Exception):
    """Another run has taken over; what this one has read may be out of date."""


class Turn:
    """The right to write conversions."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner

    def renew(self) -> None:
        """Say that this run is still at work.

        Raises:
            TurnLostError: The turn is another run's.
            StoreError: ClickHouse refused or is out of reach.
        """
        if _holder(self._store)[0] != self._owner:
            raise TurnLostError(self._owner)
        _say(self._store, self._owner)


@contextmanager
def held(store: Store) -> Generator[Turn]:
    """Wait for the turn, and hold it for as long as the block lasts.

    Raises:
        StoreError: ClickHouse refused or is out of reach.
    """
    # A thread that died with its turn in hand, as when ClickHouse went away, finds it its own again.
    owner = f"{socket.gethostname()} {os.getpid()} {threading.get_ident()}"
    _wait(store, owner)
    try:
        yield Turn(store, owner)
    finally:
        if _holder(store)[0] == owner:
            _say(store, "")


def _wait(store: Store, owner: str) -> None:
    told = ""
    while True:
        holder, age_s = _holder(store)
        if holder in {"", owner} or age_s > SILENCE_S or _is_dead(holder):
            _say(store, owner)
            if _holder(store)[0] == owner:
                return
        elif holder != told:
            _log.info("waiting for the conversion that runs on (host, process, thread) %s", holder)
            told = holder
        time.sleep(_POLL_S)


def _is_dead(holder: str) -> bool:
    """Whether the holder was a process of this machine that is no more."""
    host, pid, _ = holder.split(" ")
    if host != socket.gethostname():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _holder(store: Store) -> tuple[str, float]:
    """Who has the turn (empty: nobody), and seconds since that was last said."""
    found = store.query("pipeline_turn", name=NAME)
    return ("", 0.0) if found.is_empty() else (str(found.item(0, "owner")), float(found.item(0, "age_s")))


def _say(store: Store, owner: str) -> None:
    store.insert("pipeline_state", pl.DataFrame({"name": [NAME], "value": [owner]}))
