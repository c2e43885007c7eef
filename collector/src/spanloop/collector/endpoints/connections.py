"""Close idle HTTP connections.

uvicorn limits only the time between a response and the next byte: a connection that never completes a request head
stays open. Invariant: a connection without a request in progress is closed `IDLE_S` after it opened or its last
response, whatever bytes arrive. (A request in progress has the time limit of its body, see ``otlp_http``.)
"""

import asyncio
import resource
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from spanloop.foundation.keys.tls import TlsFiles

IDLE_S: Final = 75
"""Longer than exporters pause between batches, so that their connections stay open."""


class IdleTimeoutProtocol(H11Protocol):
    """uvicorn's HTTP protocol with an idle timeout."""

    idle_s: float = IDLE_S
    _idle_since_s = 0.0
    _idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the idle timer of a new connection."""
        super().connection_made(transport)
        self._idle_since_s = self.loop.time()
        self._idle_timer = self.loop.call_later(self.idle_s, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the idle timer of a closed connection."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Restart the idle time after a response."""
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def _check_idle(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's annotation omits None
        has_request = cycle is not None and not cycle.response_complete
        idle_s = 0.0 if has_request else self.loop.time() - self._idle_since_s
        if idle_s >= self.idle_s:
            self.transport.abort()
        else:
            self._idle_timer = self.loop.call_later(max(self.idle_s - idle_s, 0.01), self._check_idle)


def uvicorn_config(app: ASGIApp, tls: TlsFiles | None = None) -> uvicorn.Config:
    """Configure the HTTP server with the least work per request: it serves a thousand requests a second."""
    return uvicorn.Config(
        app, http=IdleTimeoutProtocol, lifespan="off", proxy_headers=False, access_log=False, log_config=None,
        timeout_keep_alive=IDLE_S, timeout_graceful_shutdown=3,
        ssl_certfile=None if tls is None else tls.certificate, ssl_keyfile=None if tls is None else tls.private_key,
    )  # fmt: skip


def raise_open_file_limit() -> None:
    """Raise this process's limit of open files to the hard limit: each connection is one file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
