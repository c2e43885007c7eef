"""A TCP proxy for ClickHouse that drops responses of INSERTs, or truncates their requests, on demand."""

import contextlib
import socket
import threading
from enum import StrEnum
from types import TracebackType
from typing import Final, Self

_INSERT_MARK: Final = b"insert_deduplication_token="
_CHUNK_BYTES: Final = 1 << 16


class Loss(StrEnum):
    """What happens to ClickHouse's response to an INSERT."""

    NONE = "none"
    CLOSED = "closed"
    """The proxy closes the connection instead."""
    SILENT = "silent"
    """The proxy sends nothing and keeps the connection open."""


class LossyProxy:
    """Listens on its own port until the block ends.

    Args:
        target_port: ClickHouse's port on loopback.
    """

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.loss = Loss.NONE
        self.lost = 0
        """Number of dropped responses."""
        self.cut_bytes = 0
        """Bytes to cut from the end of each INSERT; then both connections close, as when the client dies."""
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()
        with self._lock:
            for connection in self._open:
                _close(connection)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            _Pair(self, client, server).start()

    def next_loss(self) -> Loss:
        """Return what to do with a response, and count drops."""
        with self._lock:
            self.lost += self.loss is not Loss.NONE
            return self.loss


class _Pair:
    """The two sides of one connection."""

    def __init__(self, proxy: LossyProxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._is_inserting = False

    def start(self) -> None:
        threading.Thread(target=self._forward_requests, daemon=True).start()
        threading.Thread(target=self._forward_responses, daemon=True).start()

    def _forward_requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(_CHUNK_BYTES):
                self._is_inserting = self._is_inserting or _INSERT_MARK in data
                if _INSERT_MARK in data and self._proxy.cut_bytes:
                    self._forward_truncated(data, self._proxy.cut_bytes)
                    break
                self._server.sendall(data)
        _close(self._server)

    def _forward_truncated(self, data: bytes, cut_bytes: int) -> None:
        """Forward the head and the beginning of the body."""
        head = data.partition(b"\r\n\r\n")[0]
        length = next(
            int(value)
            for name, _, value in (line.partition(b":") for line in head.splitlines())
            if name.lower() == b"content-length"
        )
        left = len(head) + 4 + length - cut_bytes
        while left > 0 and data:
            self._server.sendall(data[:left])
            left -= len(data)
            data = self._client.recv(_CHUNK_BYTES) if left > 0 else b""
        _close(self._client)

    def _forward_responses(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(_CHUNK_BYTES):
                if self._is_inserting:
                    self._is_inserting = False
                    loss = self._proxy.next_loss()
                    if loss is Loss.SILENT:
                        while self._server.recv(_CHUNK_BYTES):
                            pass
                    if loss is not Loss.NONE:
                        break
                self._client.sendall(data)
        _close(self._client)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
