"""Pauses: whoever needs the engine's memory has it stopped for as long as they say so again and again.

Invariant: the engine is stopped for a holder only while that holder renews its pause. A holder that was killed is
forgotten when its time is over, and the last deployment is served again; after a restart of the gateway the holder is
heard at its next renewal.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Final

from .api_errors import AnswerError, UnavailableError
from .control import Control

_log: Final = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 30


class Pauses:
    """Who holds the engine stopped, and until when.

    Args:
        control: Whose engine it is.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._timers: dict[str, asyncio.TimerHandle | None] = {}
        self._expiries: set[asyncio.Task[None]] = set()

    @property
    def holders(self) -> tuple[str, ...]:
        """Who holds one now."""
        return tuple(sorted(self._timers))

    async def hold(self, holder: str, ttl_s: float) -> None:
        """Stop the engine, or keep it stopped, for ``ttl_s`` from now on; returns when its processes are gone.

        Running requests finish first, or are refused after the drain timeout. An engine that an administrator stopped,
        or that has failed, stays as it is.

        Raises:
            ConfigurationError: The engine is a server of somebody else's.
        """
        self._disarm(holder)
        self._timers[holder] = None
        try:
            await self._control.suspend(
                UnavailableError(
                    f"The model is paused while {holder} trains; it is served again by itself afterwards.",
                    code="serving_paused",
                    retry_after_s=_RETRY_AFTER_S,
                )
            )
        except BaseException:
            self._timers.pop(holder, None)
            raise
        # Only now: a long drain must not use up the time. Another renewal may have come meanwhile.
        self._disarm(holder)
        self._timers[holder] = asyncio.get_running_loop().call_later(ttl_s, self._expire, holder)

    async def release(self, holder: str) -> None:
        """Give it back; with nobody left the last deployment is started again, in the background."""
        if holder not in self._timers:
            return
        self._disarm(holder)
        del self._timers[holder]
        if not self._timers:
            await self._control.resume()

    def check_deploy(self, holder: str) -> None:
        """Refuse a deployment that would take the memory back.

        Raises:
            AnswerError: 409, somebody but ``holder`` has the engine paused.
        """
        others = [name for name in self._timers if name != holder]
        if others:
            raise AnswerError(
                HTTPStatus.CONFLICT,
                f"Serving is paused while {', '.join(others)} trains; nothing is deployed meanwhile. "
                "Next: wait for its end, or cancel it with spanloop jobs cancel.",
                code="serving_paused",
            )

    def close(self) -> None:
        """Forget all: the gateway ends."""
        for holder in self._timers:
            self._disarm(holder)
        self._timers.clear()

    def _disarm(self, holder: str) -> None:
        if (timer := self._timers.get(holder)) is not None:
            timer.cancel()

    def _expire(self, holder: str) -> None:
        _log.warning("%s is not heard of any more; its pause is over", holder)
        expiry = asyncio.get_running_loop().create_task(self.release(holder), name="pause-expiry")
        self._expiries.add(expiry)
        expiry.add_done_callback(self._expiries.discard)
