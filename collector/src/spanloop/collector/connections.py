"""Connections that say nothing, or say it for ever.

uvicorn times a connection only between an answer and the next byte: one that never sends a whole request head stays.
Invariant: a connection without a request under way is closed once `IDLE_S` are over since it came or was last
answered, whatever it trickles. (A request under way has the time limit of its body, see ``otlp_http``.)
"""

import asyncio
import resource
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

IDLE_S: Final = 75
"""Longer than exporters pause between batches, so that their connections are kept."""


class IdleTimeoutProtocol(H11Protocol):
    """uvicorn's own protocol with an end to its patience."""

    idle_s: float = IDLE_S
    _idle_since_s = 0.0
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection came."""
        super().connection_made(transport)
        self._idle_since_s = self.loop.time()
        self._watch = self.loop.call_later(self.idle_s, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """A connection went."""
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """An answer was written."""
        self._idle_since_s = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # uvicorn's annotation leaves out the None
        has_request = cycle is not None and not cycle.response_complete
        idle_s = 0.0 if has_request else self.loop.time() - self._idle_since_s
        if idle_s >= self.idle_s:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(max(self.idle_s - idle_s, 0.01), self._look)


def http_config(app: ASGIApp) -> uvicorn.Config:
    """The HTTP server before an app: bare, because whatever it does for a request it does a thousand times a second."""
    return uvicorn.Config(
        app, http=IdleTimeoutProtocol, lifespan="off", proxy_headers=False, access_log=False, log_config=None,
        timeout_keep_alive=IDLE_S, timeout_graceful_shutdown=3,
    )  # fmt: skip


def allow_many_connections() -> None:
    """Raise this process's limit of open files to what the system allows it: each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
