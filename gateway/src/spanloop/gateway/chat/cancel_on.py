"""Run a coroutine and cancel it when the client disconnects or a weight swap preempts it."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


class ClientGoneError(Exception):
    """Raised when the client closed its connection."""


class PreemptedError(Exception):
    """Raised when a weight swap no longer waits for the request."""


async def cancel_on(
    work: Coroutine[object, object, Result], *, client_gone: asyncio.Event, preempted: asyncio.Event
) -> Result:
    """Return the result of ``work``; if an event is set first, cancel the work, wait for its end and raise.

    Raises:
        ClientGoneError: ``client_gone`` was set first.
        PreemptedError: ``preempted`` was set first.
    """
    task = asyncio.ensure_future(work)
    waiters = [asyncio.ensure_future(client_gone.wait()), asyncio.ensure_future(preempted.wait())]
    try:
        await asyncio.wait({task, *waiters}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        for each in (task, *waiters):
            each.cancel()
        await asyncio.gather(task, *waiters, return_exceptions=True)
    raise ClientGoneError if client_gone.is_set() else PreemptedError
