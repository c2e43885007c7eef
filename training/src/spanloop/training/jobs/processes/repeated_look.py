"""Repeat a look in a thread of the scheduler's process, while this scheduler is the active one.

Invariant: an error is logged once, and the next look tries again; a defect in one look does not end later ones.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, NamedTuple

from spanloop.foundation.errors import SpanloopError

_log: Final = logging.getLogger(__name__)


class Pace(NamedTuple):
    """How often a look is repeated."""

    every_s: float
    """The pause after a look, at least."""
    rest: float = 0.0
    """The pause after a look is at least so many times as long as the look."""


@contextmanager
def repeating(
    look: Callable[[], None],
    *,
    name: str,
    is_leading: Callable[[], bool],
    pace: Pace,
    close: Callable[[], None] = lambda: None,
) -> Generator[None]:
    """Repeat ``look`` while the block runs and ``is_leading`` returns True; then call ``close`` in the same thread.

    Args:
        look: The look.
        name: Of what is looked at, for log records and the thread.
        is_leading: Whether this scheduler is the active one.
        pace: How often.
        close: Releases what looks hold.
    """
    stop = threading.Event()

    def run() -> None:
        try:
            _repeat(look, name, is_leading, pace, stop)
        finally:
            close()

    threading.Thread(target=run, name=f"{name} watch", daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def _repeat(
    look: Callable[[], None], name: str, is_leading: Callable[[], bool], pace: Pace, stop: threading.Event
) -> None:
    last_error, pause_s = "", pace.every_s
    while not stop.wait(pause_s):
        if not is_leading():
            continue
        began_s = time.monotonic()
        try:
            look()
            last_error = ""
        except Exception as error:  # noqa: BLE001 - the border of a look
            if str(error) != last_error:
                is_expected = isinstance(error, (SpanloopError, OSError))
                _log.error("%s: %s", name, error, exc_info=None if is_expected else error)
            last_error = str(error)
        pause_s = max(pace.every_s, pace.rest * (time.monotonic() - began_s))
