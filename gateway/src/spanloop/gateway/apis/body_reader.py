"""Read the bodies of requests within limits of size, time and memory.

Invariant: the bodies of all requests in progress together stay below the limit; a request that would exceed it is
refused while its body arrives.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

from starlette.requests import ClientDisconnect, Request

from ..api_errors import ApiError, UnavailableError

_TIMEOUT_S: Final = 120.0
_RETRY_AFTER_S: Final = 2


class BodyShare:
    """The memory of one request's body; it is free after the block."""

    def __init__(self, reader: "BodyReader") -> None:
        self._reader = reader
        self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._reader.used_bytes -= self._size_bytes
        self._size_bytes = 0

    async def read(self, request: Request, limit_bytes: int | None) -> bytes:
        """Return the body.

        Args:
            request: The request.
            limit_bytes: Limit of the caller's key; None without one.

        Raises:
            ApiError: 413, it is too large; 408, it does not arrive in time; 503, too much memory is in use.
        """
        reader = self._reader
        most_bytes = reader.max_body_bytes if limit_bytes is None else min(reader.max_body_bytes, limit_bytes)
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > most_bytes:
            raise _too_large(most_bytes)
        body = bytearray()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                # A chunked body declares no length, so its size is checked as it arrives.
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most_bytes:
                        raise _too_large(most_bytes)
                    self._add(len(chunk))
        except TimeoutError as error:
            raise ApiError(408, f"The body did not arrive within {_TIMEOUT_S:.0f} s.", code="body_timeout") from error
        except ClientDisconnect as error:
            raise ApiError(HTTPStatus.BAD_REQUEST, "The body ended early.", code="invalid_request") from error
        return bytes(body)

    def _add(self, size_bytes: int) -> None:
        reader = self._reader
        if reader.used_bytes + size_bytes > reader.max_bytes:
            reader.on_refusal()
            raise UnavailableError(
                "The gateway is overloaded: the bodies of its requests use all memory they may (bodies_bytes).",
                code="overloaded",
                retry_after_s=_RETRY_AFTER_S,
            )
        reader.used_bytes += size_bytes
        self._size_bytes += size_bytes


class BodyReader:
    """Counts the memory of all bodies.

    Args:
        max_body_bytes: Limit of one body.
        max_bytes: Limit of all bodies together.
        on_refusal: Called when that is reached.
    """

    def __init__(self, max_body_bytes: int, max_bytes: int, on_refusal: Callable[[], None]) -> None:
        self.max_body_bytes = max_body_bytes
        self.max_bytes = max_bytes
        self.on_refusal = on_refusal
        self.used_bytes = 0

    def share(self) -> BodyShare:
        """Return the memory of one body."""
        return BodyShare(self)


def _too_large(limit_bytes: int) -> ApiError:
    return ApiError(413, f"The request is larger than the limit of {limit_bytes} bytes.", code="too_large")
