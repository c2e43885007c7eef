"""Decompress request bodies by content encoding, chunk by chunk, up to a size limit.

Invariant: whatever the chunks claim, at most ``limit_bytes`` + 1 decompressed bytes exist. Concatenated gzip members,
zlib streams or zstd frames are one body.
"""

import zlib
from collections.abc import Callable
from typing import Final, Protocol

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

from .request_errors import invalid, too_large

_GZIP_WINDOW_BITS: Final = 31
_ZLIB_METHOD: Final = 8
"""Lower four bits of a zlib stream's first byte (RFC 1950, 2.2)."""
_ZSTD_WINDOW_LOG: Final = 23
"""8 MiB, which RFC 8878 recommends every decoder to support; a frame may request gigabytes."""


class Decoder(Protocol):
    """Decodes the chunks of one body."""

    def feed(self, chunk: bytes) -> int:
        """Decode a chunk and return the decompressed size so far. Raises RefusedError."""
        ...

    def finish(self) -> bytes:
        """Return the decompressed body. Raises RefusedError when it ends too early."""
        ...


class _Identity:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._chunks: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> int:
        self._size_bytes += len(chunk)
        if self._size_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes)
        self._chunks.append(chunk)
        return self._size_bytes

    def finish(self) -> bytes:
        return b"".join(self._chunks)


class _Gzip:
    _encoding = "gzip"
    _window_bits = _GZIP_WINDOW_BITS

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._body = bytearray()
        self._received_bytes = 0
        self._member = zlib.decompressobj(self._window_bits)

    def feed(self, chunk: bytes) -> int:
        self._received_bytes += len(chunk)
        try:
            while chunk:
                if self._member.eof:
                    self._member = zlib.decompressobj(self._window_bits)
                self._body += self._member.decompress(chunk, self._limit_bytes - len(self._body) + 1)
                if max(len(self._body), self._received_bytes) > self._limit_bytes:
                    raise too_large(self._limit_bytes)
                chunk = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        except zlib.error as error:
            raise invalid(f"not {self._encoding}: {error}") from error
        return len(self._body)

    def finish(self) -> bytes:
        if self._received_bytes and not self._member.eof:
            raise invalid(f"{self._encoding} ends early, after {self._received_bytes} bytes")
        return bytes(self._body)


class _Deflate(_Gzip):
    """Zlib streams (RFC 1950), which HTTP calls deflate; also raw deflate (RFC 1951), which many clients send."""

    _encoding = "deflate"
    _window_bits = zlib.MAX_WBITS

    def feed(self, chunk: bytes) -> int:
        # Raw deflate has these bits only in a stored block with non-zero padding, which no encoder writes.
        if not self._received_bytes and chunk and chunk[0] & 0x0F != _ZLIB_METHOD:
            self._member = zlib.decompressobj(-zlib.MAX_WBITS)
        return super().feed(chunk)


class _Zstd:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._body = bytearray()
        self._received_bytes = 0
        self._frame = _zstd_frame()

    def feed(self, chunk: bytes) -> int:
        self._received_bytes += len(chunk)
        try:
            while chunk or not (self._frame.eof or self._frame.needs_input):
                if self._frame.eof:
                    self._frame = _zstd_frame()
                self._body += self._frame.decompress(chunk, self._limit_bytes - len(self._body) + 1)
                if max(len(self._body), self._received_bytes) > self._limit_bytes:
                    raise too_large(self._limit_bytes)
                chunk = self._frame.unused_data if self._frame.eof else b""
        except ZstdError as error:
            raise invalid(f"not zstd: {error}") from error
        return len(self._body)

    def finish(self) -> bytes:
        if self._received_bytes and not self._frame.eof:
            raise invalid(f"zstd ends early, after {self._received_bytes} bytes")
        return bytes(self._body)


def _zstd_frame() -> ZstdDecompressor:
    return ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})


DECODERS: Final[dict[str, Callable[[int], Decoder]]] = {
    "": _Identity,
    "identity": _Identity,
    "gzip": _Gzip,
    "deflate": _Deflate,
    "zstd": _Zstd,
}
"""Decoder classes by content encoding; each is created with the limit in bytes."""
