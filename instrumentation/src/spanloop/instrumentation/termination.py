"""SIGTERM: flush, then die of it.

Invariant: an app without a handler of its own still dies of SIGTERM, with the same exit status, at most
``EXIT_BUDGET_S`` later; an app that installs one replaces ours. The flush runs in a thread of its own, started below
``threading``: the signal may have interrupted the main thread while it held one of the locks that a flush needs.
"""

import _thread
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from spanloop.instrumentation.guard import guarded
from spanloop.instrumentation.lifetime import EXIT_BUDGET_S


class TerminationHandler:
    """The SIGTERM handler.

    Args:
        flush: Sends what is buffered; may block.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush: Final = flush
        self._is_running = False

    def install(self) -> bool:
        """Handle SIGTERM, unless something already does or this is not the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return False
        signal.signal(signal.SIGTERM, self)
        return True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Flush once within the bound, then let the signal do what it would have done."""
        del frame
        if not self._is_running:
            self._is_running = True
            with guarded("telemetry was not flushed at SIGTERM"):
                self._flush_in_time()
        self._is_running = False
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _flush_in_time(self) -> None:
        done = _thread.allocate_lock()
        done.acquire()

        def run() -> None:
            with guarded("telemetry was not flushed at SIGTERM"):
                self._flush()
            done.release()

        _thread.start_new_thread(run, ())
        done.acquire(timeout=EXIT_BUDGET_S)
