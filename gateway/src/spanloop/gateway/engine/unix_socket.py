"""HTTP to the gateway's own vLLM over a Unix socket.

vLLM checks its API key on some paths only, and the paths that load weights are not among them. Invariant: the socket
lies in a folder that only the gateway's user can enter, so no other user and no host of the network reaches vLLM.
"""

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Final

import httpx

from spanloop.foundation.errors import ConfigurationError

_CONNECT_TIMEOUT_S: Final = 5.0
_DOMAIN: Final = ".engine"
_MAX_PATH_BYTES: Final = 107
"""Of a socket's path, unix(7)."""


class EngineSocket:
    """A new folder for one vLLM's socket, 0700.

    Raises:
        ConfigurationError: The path of the folder for temporary files is too long for a socket.
        OSError: The folder cannot be made.
    """

    def __init__(self) -> None:
        identity = secrets.token_hex(8)
        self.path: Final = _socket_path(identity)
        if len(bytes(self.path)) > _MAX_PATH_BYTES:
            raise ConfigurationError(
                f"The path of vLLM's socket, {self.path}, has more than {_MAX_PATH_BYTES} bytes.",
                next_step="Set TMPDIR to a folder with a shorter path, such as /tmp.",
            )
        self.path.parent.mkdir(mode=0o700)
        self.url: Final = f"http://{identity}{_DOMAIN}"
        """The URL under which a client of `engine_client` reaches the socket."""

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


def engine_client() -> httpx.AsyncClient:
    """Return a client for engines: those with an `EngineSocket`, and external ones."""
    # A response may take minutes; the client's own timeout decides, by closing the connection.
    return httpx.AsyncClient(transport=_EngineTransport(), timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S))


class _EngineTransport(httpx.AsyncBaseTransport):
    """Sends requests for an `EngineSocket` to its socket, and all others over TCP."""

    def __init__(self) -> None:
        self._tcp = _transport()
        self._by_host: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        if not host.endswith(_DOMAIN):
            return await self._tcp.handle_async_request(request)
        transport = self._by_host.get(host)
        if transport is None:
            await self._close_removed()
            transport = self._by_host[host] = _transport(_socket_path(host.removesuffix(_DOMAIN)))
        return await transport.handle_async_request(request)

    async def aclose(self) -> None:
        for transport in (self._tcp, *self._by_host.values()):
            await transport.aclose()

    async def _close_removed(self) -> None:
        """Close the connections to engines that were stopped."""
        for host in [*self._by_host]:
            if not _socket_path(host.removesuffix(_DOMAIN)).parent.exists():
                # Another request may have removed it during the wait for the last one.
                transport = self._by_host.pop(host, None)
                if transport is not None:
                    await transport.aclose()


def _transport(socket: Path | None = None) -> httpx.AsyncHTTPTransport:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    # Without proxies: those of the environment are not for the engine.
    return httpx.AsyncHTTPTransport(limits=limits, trust_env=False, uds=None if socket is None else str(socket))


def _socket_path(identity: str) -> Path:
    return Path(tempfile.gettempdir()) / f"spanloop-engine-{identity}" / "vllm.sock"
