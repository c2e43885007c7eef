"""Framing of HTTP/1.1 responses: the head, and bodies by length, by chunks and up to the end (RFC 9112).

Invariant: a body that is complete ends exactly where the server ended it. Framing that is malformed is an error, never
guessed, and a connection is reused only after a response whose end is certain.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MAX_HEAD_BYTES: Final = 64 * 1024


class FramingError(Exception):
    """Raised for bytes that are no HTTP/1.1 response."""


class Head(NamedTuple):
    """Status and header fields of a response."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name; several fields of one name are joined by commas."""
    is_persistent: bool
    """Whether the connection can be used again after the body."""


class ResponseParser:
    """Parses the responses of one connection, one after another. Methods named ``on_`` are called by llhttp."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.is_complete = False
        """Whether the body has ended."""
        self._headers: dict[str, str] = {}
        self._head_bytes = 0
        self._content: list[bytes] = []
        self.on_body = self._content.append
        self._parser = HttpResponseParser(self)
        # A response with chunks and a length is read by its chunks; its connection is not reused.
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True)

    def begin(self) -> None:
        """Expect the next response."""
        self.head, self.is_complete, self._head_bytes = None, False, 0

    def feed(self, data: bytes) -> bytes:
        """Return the content of the body in the next bytes of the connection. FramingError: they are malformed."""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            reason = error.__context__
            raise reason if isinstance(reason, FramingError) else _malformed(data, error) from error
        if self.head is None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES:
                raise FramingError(f"the head of the response is longer than {_MAX_HEAD_BYTES} bytes")
            return b""
        content = b"".join(self._content)
        self._content.clear()
        return content

    def end(self) -> None:
        """Note the end of the connection. FramingError: the response is not complete."""
        is_framed = self.head is None or bool(self.head.headers.keys() & {"content-length", "transfer-encoding"})
        if is_framed and not self.is_complete:
            raise FramingError("the connection ended before the end of the response")
        self.is_complete = True

    def on_message_begin(self) -> None:
        """Refuse bytes after the end of a response."""
        if self.is_complete:
            raise FramingError("the response is longer than its framing says")
        self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field, unless it comes after the body."""
        if self.head is None:
            key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """Keep the head, unless it is an interim one (100 to 199)."""
        status, headers = self._parser.get_status_code(), self._headers
        encoding = headers.get("transfer-encoding")
        if encoding is not None and encoding.lower() != "chunked":
            raise FramingError(f"the response has the transfer encoding {encoding!r}, expected chunked")
        if status < 100:
            raise FramingError(f"the response has the status {status}, expected 100 to 999")
        if status >= 200:
            is_certain = encoding is None or "content-length" not in headers
            self.head = Head(status, headers, is_certain and self._parser.should_keep_alive())

    def on_message_complete(self) -> None:
        """Note the end of the body."""
        self.is_complete = self.head is not None


def _malformed(data: bytes, error: Exception) -> FramingError:
    return FramingError(f"the response is no HTTP/1.1: {error}, in {data[:80]!r}")
