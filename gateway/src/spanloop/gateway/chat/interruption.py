"""Interrupt a block of a coroutine when the client disconnects or a weight swap preempts it.

Invariant: as with ``asyncio.timeout``, the block sees a cancellation, ends its work, and the error of the interruption
is raised after it; a cancellation from elsewhere stays one. It needs no task of its own.
"""

import asyncio
from types import TracebackType
from typing import Self


class ClientGoneError(Exception):
    """Raised when the client closed its connection."""


class PreemptedError(Exception):
    """Raised when a weight swap no longer waits for the request."""


class Interruptible:
    """A block that `interrupt` ends.

    Args:
        error: Raised as soon as the block begins; None lets it begin.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    def interrupt(self, error: Exception) -> None:
        """Cancel what the block does, and raise ``error`` after it; does nothing after the block and a second time."""
        if self._error is None and self._task is not None:
            self._error = error
            self._task.cancel()

    def __enter__(self) -> Self:
        if self._error is not None:
            raise self._error
        self._task = asyncio.current_task()
        self._cancelling = 0 if self._task is None else self._task.cancelling()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._error is None or task is None:
            return
        if task.uncancel() <= self._cancelling and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._error from None
