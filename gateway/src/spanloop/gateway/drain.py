"""The gateway's end: running chat requests go on for a while, new ones are sent elsewhere.

Invariant: once `Drain.wait` was called, no new chat request begins; a client gets 503 with Retry-After and a closed
connection, so that its retry reaches another gateway or the next process.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from .api_errors import UnavailableError
from .apis.routes import GENERATION_PATHS, error_response

_SHUTTING_DOWN: Final = UnavailableError("The gateway is shutting down.", code="shutting_down", retry_after_s=5)
_log: Final = logging.getLogger(__name__)


class Drain:
    """Counts the chat requests of one gateway.

    Args:
        on_refusal: Called for each request that is rejected.
    """

    def __init__(self, on_refusal: Callable[[], None] = lambda: None) -> None:
        self._on_refusal = on_refusal
        self.is_active = False
        """Whether new requests are rejected."""
        self._running = 0
        self._idle = asyncio.Event()

    def wrap(self, app: ASGIApp) -> ASGIApp:
        """Return the application with its chat requests counted, or rejected."""

        async def handle(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"] not in GENERATION_PATHS:
                await app(scope, receive, send)
                return
            if self.is_active:
                self._on_refusal()
                response = error_response(scope["path"], _SHUTTING_DOWN)
                response.headers["connection"] = "close"
                await response(scope, receive, send)
                return
            self._running += 1
            try:
                await app(scope, receive, send)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

        return handle

    async def wait(self, grace_s: float) -> None:
        """Reject new requests; wait until the running ones have ended, at most ``grace_s``."""
        self.is_active = True
        if not self._running:
            return
        _log.info("the gateway stops; %d requests run, for at most %.1f s", self._running, grace_s)
        self._idle.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
