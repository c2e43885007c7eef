"""Pace the reading of fast streams: what arrives within 15 ms is read together.

A part that is read alone costs as much CPU time as the work on several events: an event of the loop, a switch of tasks,
and a write to the client.

Invariant: bytes wait at most `INTERVAL_S`, in the buffer of the socket. Those of a stream that is slower than one part
an interval do not wait, nor does the beginning of a stream.
"""

import asyncio
from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.015
_BURST_S: Final = 4 * INTERVAL_S
"""Parts of a stream that are read at once however fast they come: its role and its first tokens."""


class Pace:
    """The rate at which one stream is read, as a token bucket."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def count(self, now_s: float) -> None:
        """Count a part that was read."""
        self._next_s = max(self._next_s, now_s) + INTERVAL_S

    def is_due(self, now_s: float) -> bool:
        """Return whether the next part is read at once."""
        return now_s >= self._next_s - _BURST_S


class Pacer:
    """Reads on from the sockets of all fast streams together, by one timer."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], None]] = []

    def call_later(self, call: Callable[[], None]) -> None:
        """Make the call within an interval."""
        if not self._calls:
            asyncio.get_running_loop().call_later(INTERVAL_S, self._call_all)
        self._calls.append(call)

    def _call_all(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            call()
