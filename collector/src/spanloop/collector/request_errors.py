"""Requests that are refused as a whole, and memory's own reason to refuse them.

Invariant: bodies that are held in memory, from their first byte until they are on disk, never exceed one budget. Who
comes when it is spent is told to come back; nobody waits for memory, so nobody can wait for ever.
"""

from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from http import HTTPStatus
from typing import Final

RETRY_AFTER_S: Final = 2


class RpcCode(IntEnum):
    """The google.rpc codes that we answer with."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class RefusedError(Exception):
    """A request that is refused as a whole, with the answer's parts.

    Args:
        status: What HTTP says.
        code: What google.rpc says.
        message: For a person: what, got, expected.
        retry_after_s: None tells the sender that trying again is of no use.
        is_hanging: The body was not read to its end and may never end: the connection should not be kept.
    """

    def __init__(
        self,
        status: HTTPStatus,
        code: RpcCode,
        message: str,
        *,
        retry_after_s: int | None = None,
        is_hanging: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s
        self.is_hanging = is_hanging


def unavailable(message: str, *, is_hanging: bool = False) -> RefusedError:
    """503: not now, but soon."""
    return RefusedError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        RpcCode.UNAVAILABLE,
        message,
        retry_after_s=RETRY_AFTER_S,
        is_hanging=is_hanging,
    )


def too_large(limit_bytes: int) -> RefusedError:
    """413: smaller batches would pass."""
    return RefusedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        RpcCode.RESOURCE_EXHAUSTED,
        f"the body is larger than {limit_bytes} bytes after decompression; send smaller batches",
    )


def invalid(message: str) -> RefusedError:
    """400: the same bytes will never pass."""
    return RefusedError(HTTPStatus.BAD_REQUEST, RpcCode.INVALID_ARGUMENT, message)


class Reservation:
    """What one request holds of the budget."""

    def __init__(self, budget: "MemoryBudget") -> None:
        self._budget = budget
        self._size_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Hold this much from now on.

        Raises:
            RefusedError: All requests together would hold more than the budget.
        """
        more_bytes = size_bytes - self._size_bytes
        if more_bytes <= 0:
            return
        self._budget.take(more_bytes)
        self._size_bytes = size_bytes

    def release(self) -> None:
        """Give everything back."""
        self._budget.give_back(self._size_bytes)
        self._size_bytes = 0


class MemoryBudget:
    """Bytes of bodies in memory at once; used on one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    @contextmanager
    def share(self) -> Generator[Reservation]:
        """One request's share, for as long as the block lasts."""
        share = Reservation(self)
        try:
            yield share
        finally:
            share.release()

    def take(self, size_bytes: int) -> None:
        """Reserve bytes.

        Raises:
            RefusedError: They are not there.
        """
        if self.held_bytes + size_bytes > self._limit_bytes:
            raise unavailable(
                f"requests with {self.held_bytes} bytes of bodies are under way, and {size_bytes} more do not fit "
                f"into {self._limit_bytes}",
                is_hanging=True,
            )
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Return reserved bytes."""
        self.held_bytes -= size_bytes
