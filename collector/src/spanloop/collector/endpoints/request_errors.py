"""Errors that refuse a request as a whole, with the status codes of HTTP and google.rpc."""

from enum import IntEnum
from http import HTTPStatus
from typing import Final

RETRY_AFTER_S: Final = 2


class RpcCode(IntEnum):
    """The google.rpc codes that the collector returns."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class RefusedError(Exception):
    """Raised when a request is refused as a whole; holds the parts of the response.

    Args:
        status: HTTP status.
        code: google.rpc code.
        message: Text for the user: what, got, expected.
        retry_after_s: When the client may retry; None when a retry is of no use.
        closes_connection: The body was not read to its end and may never end, so the connection should be closed.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: RpcCode,
        message: str,
        *,
        retry_after_s: int | None = None,
        closes_connection: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.closes_connection = closes_connection


def unavailable(message: str, *, closes_connection: bool = False) -> RefusedError:
    """Create a 503: a retry may succeed soon."""
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        RpcCode.UNAVAILABLE,
        message,
        retry_after_s=RETRY_AFTER_S,
        closes_connection=closes_connection,
    )


def too_large(limit_bytes: int) -> RefusedError:
    """Create a 413: smaller batches would be accepted."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        RpcCode.RESOURCE_EXHAUSTED,
        f"the body is larger than {limit_bytes} bytes after decompression; send smaller batches",
    )


def invalid(message: str) -> RefusedError:
    """Create a 400: the same bytes are never accepted."""
    return RefusedError(HTTPStatus.BAD_REQUEST, RpcCode.INVALID_ARGUMENT, message)
