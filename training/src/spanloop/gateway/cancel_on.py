"""Run work until it is done or until one of the reasons to give it up comes first."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

Result = TypeVar("Result")


class GivenUpError(Exception):
    """The work was cancelled for the reason that holds."""


class CallerGoneError(GivenUpError):
    """The caller closed its connection."""


class PreemptedError(GivenUpError):
    """A swap does not wait any longer."""


async def unless(work: Coroutine[object, object, Result], *, gone: asyncio.Event, preempted: asyncio.Event) -> Result:
    """The result of ``work``; when an event comes first, the work is cancelled and has ended before this raises.

    Raises:
        CallerGoneError: ``gone`` came first.
        PreemptedError: ``preempted`` came first.
    """
    running = asyncio.ensure_future(work)
    reasons = [asyncio.ensure_future(gone.wait()), asyncio.ensure_future(preempted.wait())]
    try:
        await asyncio.wait({running, *reasons}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
    finally:
        for task in (running, *reasons):
            task.cancel()
        await asyncio.gather(running, *reasons, return_exceptions=True)
    raise CallerGoneError if gone.is_set() else PreemptedError
