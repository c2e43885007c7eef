"""An HTTP/1.1 client for engines, over TCP, TLS or the Unix socket of a gateway's own vLLM.

It reads no proxy settings, follows no redirect and keeps no cookie: a gateway talks to engines only. General clients
cost as much CPU time for a request as everything else that the gateway does with it (``benchmarks/gateway.py``).

Invariant: a connection is kept only after a response that was read to its end; leaving a response early closes its
connection, by which vLLM ends the generation. An idle connection is closed before the engine does so.
"""

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncGenerator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from .connection import Connection, EngineConnectionError
from .json_codec import encode_json
from .pacing import Pacer

SOCKET_DOMAIN: Final = ".engine"
"""Of the host names that stand for a Unix socket."""
_CONNECT_TIMEOUT_S: Final = 5.0
_MAX_IDLE: Final = 64
"""Connections kept for each engine."""
_IDLE_S: Final = 4.0
"""Below the 5 s after which vLLM's server closes an idle connection."""


def socket_path(identity: str) -> Path:
    """Return the path of the Unix socket whose host name is ``IDENTITY.engine``."""
    return Path(tempfile.gettempdir()) / f"spanloop-engine-{identity}" / "vllm.sock"


class EngineResponse(NamedTuple):
    """A response that was read to its end."""

    status_code: int
    headers: Mapping[str, str]
    """By lower-case name."""
    content: bytes

    @property
    def text(self) -> str:
        """The content as UTF-8."""
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Return the content's JSON value. ValueError: it is not JSON."""
        return json.loads(self.content)


class EngineStream:
    """A response whose body arrives in parts."""

    def __init__(self, connection: Connection, status_code: int, headers: Mapping[str, str]) -> None:
        self._connection = connection
        self.status_code = status_code
        self.headers = headers

    @property
    def is_complete(self) -> bool:
        """Whether the last part was received."""
        return self._connection.is_complete

    async def read(self) -> bytes:
        """Return what has arrived, at least one byte; empty at the end. EngineConnectionError: the body broke off."""
        return await self._connection.read()

    async def read_all(self) -> EngineResponse:
        """Return the response with the rest of the body; it raises as `read`."""
        return EngineResponse(self.status_code, self.headers, await self._connection.read_all())


class _Target(NamedTuple):
    """A URL, taken apart."""

    origin: tuple[str, str, int]
    """Scheme, host and port."""
    host_header: str
    path: str


class EngineClient:
    """Sends requests. Each method raises EngineConnectionError when the connection cannot be made, or fails."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[Connection]] = {}
        self._pacer = Pacer()
        self._authorizations: dict[tuple[str, str, int], Mapping[str, str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def authorize(self, url: str, key: str) -> None:
        """Send an API key to the server of a URL, instead of what a request's caller sent."""
        self._authorizations[_split(url).origin] = {"authorization": f"Bearer {key}"}

    async def aclose(self) -> None:
        """Close the idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    async def get(self, url: str, *, timeout_s: float | None = None) -> EngineResponse:
        """Send a GET request."""
        return await self.request("GET", url, timeout_s=timeout_s)

    async def request(
        self,
        method: str,
        url: str,
        *,
        content: bytes = b"",
        json: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> EngineResponse:
        """Send a request and read its response.

        Args:
            method: As in HTTP.
            url: ``http``, ``https``, or ``http`` with a host that ends with ``.engine``.
            content: The body; its type is JSON.
            json: The body as a JSON value, instead of ``content``.
            headers: Further header fields.
            timeout_s: Longest time until the end of the response; None waits for ever.
        """
        body = content if json is None else encode_json(json)
        try:
            async with asyncio.timeout(timeout_s), self.stream(method, url, content=body, headers=headers) as response:
                return await response.read_all()
        except TimeoutError as error:
            raise EngineConnectionError(f"no response within {timeout_s} s") from error

    @contextlib.asynccontextmanager
    async def stream(
        self, method: str, url: str, *, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[EngineStream]:
        """Send a request; the block reads the response."""
        target = _split(url)
        connection = self._take_idle(target.origin) or await _connect(target.origin, self._pacer)
        is_read = False
        try:
            fields = {**(headers or {}), **self._authorizations.get(target.origin, {})}
            connection.send(_request(method, target, content, fields))
            head = await connection.head()
            yield EngineStream(connection, head.status, head.headers)
            is_read = connection.is_reusable
        finally:
            if is_read:
                self._keep(target.origin, connection)
            else:
                connection.abort()

    def _take_idle(self, origin: tuple[str, str, int]) -> Connection | None:
        connections = self._idle.get(origin)
        oldest_s = asyncio.get_running_loop().time() - _IDLE_S
        while connections:
            connection = connections.pop()
            if not connection.is_closed and connection.idle_since_s > oldest_s:
                return connection
            connection.abort()
        self._idle.pop(origin, None)
        return None

    def _keep(self, origin: tuple[str, str, int], connection: Connection) -> None:
        now_s = asyncio.get_running_loop().time()
        connection.end_response(now_s)
        connections = self._idle.setdefault(origin, [])
        connections.append(connection)
        # The oldest are first.
        while len(connections) > _MAX_IDLE or (connections and connections[0].idle_since_s <= now_s - _IDLE_S):
            connections.pop(0).abort()


@lru_cache(maxsize=64)
def _split(url: str) -> _Target:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise EngineConnectionError(f"the URL {url!r} is not one of HTTP")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _Target((parts.scheme, parts.hostname, port), parts.netloc.rpartition("@")[2], path)


def _request(method: str, target: _Target, content: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target.path} HTTP/1.1", f"host: {target.host_header}", f"content-length: {len(content)}"]
    if content:
        lines.append("content-type: application/json")
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + content


async def _connect(origin: tuple[str, str, int], pacer: Pacer) -> Connection:
    scheme, host, port = origin
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(loop, pacer)

    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            if host.endswith(SOCKET_DOMAIN):
                path = str(socket_path(host.removesuffix(SOCKET_DOMAIN)))
                return (await loop.create_unix_connection(make, path))[1]
            tls = _tls_context() if scheme == "https" else None
            return (await loop.create_connection(make, host, port, ssl=tls))[1]
    except (OSError, TimeoutError, UnicodeError) as error:
        raise EngineConnectionError(f"no connection to {host} port {port}: {error or type(error).__name__}") from error


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    return ssl.create_default_context()
