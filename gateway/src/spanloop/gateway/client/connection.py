"""One HTTP/1.1 connection to an engine, as an asyncio protocol.

Invariant: at most one response is in progress. A reader that falls behind stops the reading from the socket, so a slow
client bounds the memory of its stream. What was read from the socket wakes the reader at once; the socket of a fast
stream is read again when `pacing` says so.
"""

import asyncio
from typing import Final, cast

from .framing import FramingError, Head, ResponseParser
from .pacing import Pace, Pacer

_HIGH_WATER_BYTES: Final = 1 << 20
_LOW_WATER_BYTES: Final = 1 << 18


class EngineConnectionError(Exception):
    """Raised when the connection to an engine fails: refused, ended, malformed or too slow."""


class Connection(asyncio.Protocol):
    """A connection; made by the event loop.

    Args:
        loop: The event loop.
        pacer: Of the connections of one client.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pacer: Pacer) -> None:
        self._loop = loop
        self._pacer = pacer
        self._pace = Pace()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: EngineConnectionError | None = None
        self._response = ResponseParser()
        self._content: list[bytes] = []
        self._content_bytes = 0
        self._is_reading_paused = False
        self._is_paced = False
        """Whether the pacer reads on."""
        self._is_busy = False
        self.idle_since_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether the connection cannot be used any more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_complete(self) -> bool:
        """Whether the whole body was received; parts of it may wait to be read."""
        return self._response.is_complete

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent."""
        head = self._response.head
        return self.is_complete and head is not None and head.is_persistent and not self.is_closed

    def send(self, request: bytes) -> None:
        """Send a request."""
        self._response.begin()
        self._content, self._content_bytes = [], 0
        self._pace = Pace()
        self._is_busy = True
        if self._transport is None:
            raise self._error or EngineConnectionError("the connection is closed")
        self._transport.write(request)

    async def head(self) -> Head:
        """Return the head of the response. EngineConnectionError: there is none."""
        while self._response.head is None:
            await self._wait()
        return self._response.head

    async def read(self) -> bytes:
        """Return the content that has arrived, at least one byte; empty at the end of the body.

        Raises:
            EngineConnectionError: The connection failed before the end of the body.
        """
        while not self._content:
            if self.is_complete:
                return b""
            await self._wait()
        content = self._content[0] if len(self._content) == 1 else b"".join(self._content)
        self._content, self._content_bytes = [], 0
        now_s = self._loop.time()
        self._pace.count(now_s)
        if self.is_complete or self._is_paced or self._pace.is_due(now_s):
            self._resume_below(_LOW_WATER_BYTES)
        else:
            self._pause()
            self._is_paced = True
            self._pacer.call_later(self._resume_paced)
        return content

    async def read_all(self) -> bytes:
        """Return the rest of the body; it raises as `read`."""
        self._resume_below(1 << 62)
        while not self.is_complete:
            await self._wait()
            self._resume_below(1 << 62)
        return await self.read() if self._content else b""

    def end_response(self, now_s: float) -> None:
        """Note that the response was read."""
        self._is_busy = False
        self.idle_since_s = now_s

    def abort(self) -> None:
        """Close the connection at once, which ends the engine's work on the request."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Decode the next bytes."""
        try:
            self._receive(data)
        except FramingError as error:
            self._fail(EngineConnectionError(f"{error}"))
            self.abort()
        self._wake()

    def eof_received(self) -> bool:
        """Close the transport."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the response in progress, unless it ends with the connection."""
        self._transport = None
        if self._response.head is None:
            self._fail(EngineConnectionError("the connection ended before the response"))
        elif exc is not None and not self.is_complete:
            self._fail(EngineConnectionError(f"{type(exc).__name__}: {exc}"))
        else:
            try:
                self._response.end()
            except FramingError as error:
                self._fail(EngineConnectionError(str(error)))
        self._wake()

    def _receive(self, data: bytes) -> None:
        if not self._is_busy:
            raise FramingError("the engine sent bytes without a request")
        content = self._response.feed(data)
        if content:
            self._content.append(content)
            self._content_bytes += len(content)
            if self._content_bytes > _HIGH_WATER_BYTES:
                self._pause()

    def _pause(self) -> None:
        if self._transport is not None and not self.is_closed and not self._is_reading_paused:
            self._transport.pause_reading()
            self._is_reading_paused = True

    def _resume_paced(self) -> None:
        self._is_paced = False
        self._resume_below(_LOW_WATER_BYTES)

    def _resume_below(self, limit_bytes: int) -> None:
        if self._transport is None or self.is_closed or self._is_paced or not self._is_reading_paused:
            return
        if self._content_bytes < limit_bytes:
            self._transport.resume_reading()
            self._is_reading_paused = False

    def _fail(self, error: EngineConnectionError) -> None:
        self._error = self._error or error

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
