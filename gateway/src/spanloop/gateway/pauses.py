"""Pauses of the engine: a holder (a training job) stops it to use its memory, and renews the pause while it runs.

Invariant: the engine is stopped for a holder only while that holder renews its pause. When the time of a killed holder
expires, the last deployment is served again. After a restart of the gateway the holder's next renewal pauses it again.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Final, Protocol

from .api_errors import ApiError, UnavailableError

_log: Final = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 30


class PausableEngines(Protocol):
    """What a pause stops: the champion's engine, and the candidate's of a canary."""

    async def suspend(self, reason: UnavailableError) -> None:
        """Free their memory after running requests. ConfigurationError: the champion's is an external server."""
        ...

    async def resume(self) -> None:
        """Start those that `suspend` stopped, in the background."""
        ...


class Pauses:
    """The active pauses: holders and expiry timers.

    Args:
        engines: The engines to pause.
    """

    def __init__(self, engines: PausableEngines) -> None:
        self._engines = engines
        self._timers: dict[str, asyncio.TimerHandle | None] = {}
        self._expiries: set[asyncio.Task[None]] = set()

    @property
    def holders(self) -> tuple[str, ...]:
        """The holders of active pauses, sorted."""
        return tuple(sorted(self._timers))

    async def hold(self, holder: str, ttl_s: float) -> None:
        """Stop the engine, or keep it stopped, for ``ttl_s`` from now; return when its processes have ended.

        Running requests finish first, or are preempted after the drain timeout. A stopped or failed engine stays as it
        is.

        Raises:
            ConfigurationError: The engine is an external server.
        """
        self._cancel_timer(holder)
        self._timers[holder] = None
        try:
            await self._engines.suspend(
                UnavailableError(
                    f"The model is paused while {holder} trains; serving resumes automatically afterwards.",
                    code="serving_paused",
                    retry_after_s=_RETRY_AFTER_S,
                )
            )
        except BaseException:
            self._timers.pop(holder, None)
            raise
        # The time starts here, so that a long drain does not use it up. A renewal may have set a timer meanwhile.
        self._cancel_timer(holder)
        self._timers[holder] = asyncio.get_running_loop().call_later(ttl_s, self._expire, holder)

    async def release(self, holder: str) -> None:
        """End a holder's pause; after the last one, start the last deployment again in the background."""
        if holder not in self._timers:
            return
        self._cancel_timer(holder)
        del self._timers[holder]
        if not self._timers:
            await self._engines.resume()

    def check_deploy(self, holder: str) -> None:
        """Reject a deployment that would use the memory that a pause has freed.

        Raises:
            ApiError: 409, another holder than ``holder`` has paused the engine.
        """
        other_holders = [name for name in self._timers if name != holder]
        if other_holders:
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"Serving is paused while {', '.join(other_holders)} trains; deployments are rejected meanwhile. "
                "Next: wait until it ends, or cancel it with spanloop jobs cancel.",
                code="serving_paused",
            )

    def close(self) -> None:
        """Cancel all timers, because the gateway ends."""
        for holder in self._timers:
            self._cancel_timer(holder)
        self._timers.clear()

    def _cancel_timer(self, holder: str) -> None:
        if (timer := self._timers.get(holder)) is not None:
            timer.cancel()

    def _expire(self, holder: str) -> None:
        _log.warning("%s did not renew its pause in time; the pause ends", holder)
        expiry = asyncio.get_running_loop().create_task(self.release(holder), name="pause-expiry")
        self._expiries.add(expiry)
        expiry.add_done_callback(self._expiries.discard)
