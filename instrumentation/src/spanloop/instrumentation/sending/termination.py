"""Flush telemetry where ``atexit`` does not run: on SIGTERM, and in children of ``multiprocessing``.

Invariant: an app without a SIGTERM handler still dies of SIGTERM, with the same exit status, at most
``EXIT_BUDGET_S`` after its main thread is back in Python (no handler in Python can interrupt a long call in C); an app
that installs one replaces ours. A flush runs in a separate thread, started below ``threading``: the signal may have
interrupted the main thread while it held one of the locks that a flush needs.
"""

import _thread
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from wrapt import register_post_import_hook

from spanloop.instrumentation.exception_guard import guard, guarded
from spanloop.instrumentation.sending.lifetime import EXIT_BUDGET_S

_FIRST: Final = 1000  # before multiprocessing's own finalizers


class Termination:
    """Flushes before the process ends.

    Args:
        flush: Sends what is buffered; may block.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush: Final = flush
        self._is_running = False

    def install(self) -> None:
        """Handle SIGTERM, unless a handler exists, and the children that ``multiprocessing`` forks."""
        register_post_import_hook(self._watch_children, "multiprocessing.util")
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        try:
            if not self._is_running:  # a second signal does not wait for the flush
                self._is_running = True
                self._flush_in_time()
        finally:  # also after Ctrl-C
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    @guard("multiprocessing children will lose their last spans", None)
    def _watch_children(self, util: Any) -> None:
        def in_child(_: object) -> None:
            self._in_child()

        util.register_after_fork(Termination, in_child)  # the registry's reference is weak: the class outlives it

    def _in_child(self) -> None:
        """A forked child ends by ``os._exit``: only multiprocessing's own finalizers run."""
        with guarded("a child's last spans will be lost"):
            from multiprocessing.util import Finalize  # noqa: PLC0415  imported by the app already

            Finalize(None, self._flush_in_time, exitpriority=_FIRST)

    @guard("telemetry was not flushed", None)
    def _flush_in_time(self) -> None:
        finished = _thread.allocate_lock()
        finished.acquire()

        def run() -> None:
            with guarded("telemetry was not flushed"):
                self._flush()
            finished.release()

        _thread.start_new_thread(run, ())
        finished.acquire(timeout=EXIT_BUDGET_S)
