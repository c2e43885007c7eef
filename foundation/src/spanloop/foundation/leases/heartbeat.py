"""Renew something in a thread while other work runs."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Self


class Heartbeat:
    """Calls a function at an interval, in a thread, until it stops or the function returns False.

    Args:
        beat: Renews, and returns whether to go on. It handles its own errors.
        interval_s: Time before the first call, and between calls.
        name: Name of the thread.
    """

    def __init__(self, beat: Callable[[], bool], interval_s: float, *, name: str) -> None:
        self._beat = beat
        self._interval_s = interval_s
        self._stopped = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop calling; wait for a call that runs, at most ``timeout_s``. Return False if it was stopped before."""
        was_running = not self._stopped.is_set()
        self._stopped.set()
        self._thread.join(timeout_s)
        return was_running

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            if not self._beat():
                return
