"""A stop flag that a signal handler can set safely.

``threading.Event`` is not safe there: its ``set`` takes a lock that the interrupted ``wait`` may hold.
"""

import os
import select
import signal
import sys
from types import FrameType, TracebackType
from typing import NoReturn, Self


class StopRequest:
    """A flag set by a signal or a call; a context manager that restores the previous signal handlers."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._previous_handlers = {number: signal.signal(number, self._handle) for number in signals}

    def set(self) -> None:
        """Request a stop."""
        os.eventfd_write(self._descriptor, 1)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s``; return whether a stop was requested."""
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)
        os.close(self._descriptor)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.set()


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process as an exit does, so that it cleans up."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
