"""A wish to stop that a signal handler may set at any instant.

``threading.Event`` may not: its ``set`` takes a lock that the interrupted ``wait`` may hold.
"""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self


class StopRequest:
    """Set once, by a signal or by a call; a context manager that puts the former signal handlers back."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._former = {number: signal.signal(number, self._handle) for number in signals}

    def set(self) -> None:
        """Ask to stop."""
        os.eventfd_write(self._descriptor, 1)

    def wait(self, timeout_s: float) -> bool:
        """Whether to stop, after at most ``timeout_s``."""
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self._descriptor)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.set()
