"""One HTTP connection for OTLP requests, with the standard library only.

Invariant: nothing is logged; only ``OSError``, ``HTTPException`` and ``ValueError`` are raised; no single wait is
longer than its timeout. The standard library, because ``urllib3`` and ``requests`` write to loggers that the app
may have pointed at its stdout, and cost their import. ``abort()`` may be called from any thread and unblocks a request
in flight.
"""

import os
import socket
import ssl
from http.client import HTTPConnection, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from spanloop.instrumentation.sending.endpoint import TlsFiles

_MAX_RESPONSE_BYTES: Final = 1 << 20


class Response(NamedTuple):
    """Status, reason, ``Retry-After`` (empty without one) and the first MiB of the body."""

    status: int
    reason: str
    retry_after: str
    body: bytes


class Connection:
    """A connection that is opened when needed and reused for the next request. Used by one thread at a time."""

    def __init__(self, tls: TlsFiles) -> None:
        self._tls = tls
        self._http: HTTPConnection | None = None
        self._url = ""

    def post(self, url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> Response:
        """Send ``body`` and read the response; no single wait on the network is longer than ``timeout_s``.

        Raises:
            OSError: No connection, or it broke or timed out.
            http.client.HTTPException: The response is not HTTP.
            ValueError: No usable URL or header.
        """
        parts = urlsplit(url)
        is_reused = self._prepare(url, parts, timeout_s)
        try:
            return self._exchange(parts, body, headers)
        except (ConnectionError, ssl.SSLError):
            self.close()
            if not is_reused:
                raise
        # The server may have closed the idle connection: that does not mean that it is gone.
        self._prepare(url, parts, timeout_s)
        return self._exchange(parts, body, headers)

    def close(self) -> None:
        """Drop the connection; the next request opens another."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    def detach(self) -> None:
        """Drop a connection that belongs to the parent process, without sending anything."""
        http, self._http = self._http, None
        if http is not None and http.sock is not None:
            os.close(http.sock.detach())

    def abort(self) -> None:
        """Unblock a request in flight, from another thread."""
        http = self._http
        sock = http.sock if http is not None else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is already shut down
                return

    def _prepare(self, url: str, parts: SplitResult, timeout_s: float) -> bool:
        if self._http is not None and self._url == url and self._http.sock is not None:
            self._http.sock.settimeout(timeout_s)
            return True
        self.close()
        self._url = url
        self._http = self._open(parts, timeout_s)
        return False

    def _open(self, parts: SplitResult, timeout_s: float) -> HTTPConnection:
        host = parts.hostname
        if parts.scheme not in {"http", "https"} or not host:
            raise ValueError("expected a URL like http://host:port")
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._tls.certificate or None)
        if self._tls.client_certificate:
            context.load_cert_chain(self._tls.client_certificate, self._tls.client_key or None)
        return HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)

    def _exchange(self, parts: SplitResult, body: bytes, headers: dict[str, str]) -> Response:
        http = self._http
        if http is None:
            raise ConnectionAbortedError("the connection was closed")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            http.request("POST", target, body=body, headers=headers)
            response = http.getresponse()
            content = response.read(_MAX_RESPONSE_BYTES)
            if response.will_close or not response.isclosed():
                self.close()
        except BaseException:
            self.close()
            raise
        return Response(response.status, response.reason, response.headers.get("Retry-After", ""), content)
