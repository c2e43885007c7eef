"""Framing of HTTP/1.1 responses: the head, and bodies by length, by chunks and up to the end (RFC 9112).

Invariant: a body that is complete ends exactly where the server ended it. Framing that is ambiguous or malformed is an
error, never guessed, so a connection is reused only after a response whose end is certain.
"""

import re
from typing import Final, NamedTuple, Protocol

MAX_HEAD_BYTES: Final = 64 * 1024
_MAX_LINE_BYTES: Final = 8 * 1024
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_CHUNK_SIZE: Final = re.compile(rb"\s*([0-9a-fA-F]{1,15})\s*(?:;.*)?", re.DOTALL)
_NO_BODY: Final = frozenset({204, 304})


class FramingError(Exception):
    """Raised for bytes that are no HTTP/1.1 response."""


class Head(NamedTuple):
    """Status line and header fields of a response."""

    status: int
    headers: dict[str, str]
    """By lower-case name; several fields of one name are joined by commas."""
    is_persistent: bool
    """Whether the connection can be used again after the body."""


class Body(Protocol):
    """Decodes the body of one response."""

    is_complete: bool

    def feed(self, data: bytes) -> bytes:
        """Return the content in the next bytes of the connection. FramingError: they are malformed."""
        ...

    def end(self) -> None:
        """Note the end of the connection. FramingError: the body is not complete."""
        ...


def parse_head(raw: bytes) -> Head:
    """Parse the bytes before the empty line.

    Raises:
        FramingError: They are no head of a response.
    """
    status_line, *lines = raw.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if match is None:
        raise FramingError(f"the response begins with {status_line[:80]!r}, expected a status line of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise FramingError(f"the response has the header line {line[:80]!r}, expected NAME: VALUE")
        key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    is_closed = match[1] == b"0" or "close" in headers.get("connection", "").lower()
    is_ambiguous = "transfer-encoding" in headers and "content-length" in headers
    return Head(int(match[2]), headers, not is_closed and not is_ambiguous)


def body_of(head: Head) -> Body:
    """Return the decoder of a response's body.

    Raises:
        FramingError: The head states no valid length.
    """
    if head.status in _NO_BODY:
        return LengthBody(0)
    if (encoding := head.headers.get("transfer-encoding")) is not None:
        if encoding.lower() != "chunked":
            raise FramingError(f"the response has the transfer encoding {encoding!r}, expected chunked")
        return ChunkedBody()
    if (length := head.headers.get("content-length")) is not None:
        if not (length.isascii() and length.isdigit()):
            raise FramingError(f"the response has the content length {length!r}, expected a number")
        return LengthBody(int(length))
    return ClosedBody()


class LengthBody:
    """A body of a known length, bytes."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.is_complete = not length

    def feed(self, data: bytes) -> bytes:
        """Return the content."""
        if len(data) > self._left:
            raise FramingError(f"the response is {len(data) - self._left} bytes longer than its length")
        self._left -= len(data)
        self.is_complete = not self._left
        return data

    def end(self) -> None:
        """Note the end of the connection."""
        if not self.is_complete:
            raise FramingError(f"the connection ended {self._left} bytes before the end of the response")


class ClosedBody:
    """A body that ends with the connection."""

    is_complete = False

    def feed(self, data: bytes) -> bytes:
        """Return the content."""
        return data

    def end(self) -> None:
        """Note the end of the connection."""
        self.is_complete = True


class ChunkedBody:
    """A body in chunks; trailer fields are read and dropped."""

    def __init__(self) -> None:
        self.is_complete = False
        self._rest = b""
        self._left = 0
        """Bytes of the current chunk that are still to come."""
        self._is_after_chunk = False
        self._is_trailer = False

    def feed(self, data: bytes) -> bytes:
        """Return the content."""
        buffer = self._rest + data if self._rest else data
        parts: list[bytes] = []
        at, end = 0, len(buffer)
        while at < end and not self.is_complete:
            if self._left:
                part = buffer[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if not self._left and buffer.startswith(b"\r\n", at):
                    at += 2
                else:
                    self._is_after_chunk = not self._left
                continue
            line_end = buffer.find(b"\r\n", at)
            if line_end < 0:
                break
            self._read_line(buffer[at:line_end])
            at = line_end + 2
        self._rest = buffer[at:]
        if self.is_complete and self._rest:
            raise FramingError(f"the response is {len(self._rest)} bytes longer than its chunks")
        if len(self._rest) > _MAX_LINE_BYTES:
            raise FramingError(f"the response has a chunk's size line of more than {_MAX_LINE_BYTES} bytes")
        return b"".join(parts)

    def _read_line(self, line: bytes) -> None:
        if self._is_trailer:
            self.is_complete = not line
        elif self._is_after_chunk:
            if line:
                raise FramingError(f"a chunk is followed by {line[:80]!r}, expected the end of the line")
            self._is_after_chunk = False
        else:
            size = _CHUNK_SIZE.fullmatch(line)
            if size is None:
                raise FramingError(f"a chunk has the size {line[:80]!r}, expected hexadecimal digits")
            self._left = int(size[1], 16)
            self._is_trailer = not self._left

    def end(self) -> None:
        """Note the end of the connection."""
        if not self.is_complete:
            raise FramingError("the connection ended before the last chunk")
