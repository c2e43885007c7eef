"""A limit on the bytes of request bodies in memory at once.

Invariant: bodies in memory, from their first byte until they are on disk, never exceed one budget. A request beyond it
is refused with 503 and a time to retry after; no request waits for memory, so none can wait for ever.
"""

from collections.abc import Generator
from contextlib import contextmanager

from .request_errors import unavailable


class Reservation:
    """The bytes that one request holds of the budget."""

    def __init__(self, budget: "MemoryBudget") -> None:
        self._budget = budget
        self.size_bytes = 0

    def grow_to(self, size_bytes: int) -> None:
        """Hold this many bytes from now on.

        Raises:
            RefusedError: All requests together would exceed the budget.
        """
        more_bytes = size_bytes - self.size_bytes
        if more_bytes <= 0:
            return
        self._budget.acquire(more_bytes)
        self.size_bytes = size_bytes


class MemoryBudget:
    """Counts the bytes of bodies in memory; used on one event loop."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.reserved_bytes = 0

    @contextmanager
    def reserve(self) -> Generator[Reservation]:
        """Yield one request's reservation, which ends with the block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.release(reservation.size_bytes)

    def acquire(self, size_bytes: int) -> None:
        """Reserve bytes.

        Raises:
            RefusedError: The budget has fewer bytes left.
        """
        if self.reserved_bytes + size_bytes > self._limit_bytes:
            raise unavailable(
                f"requests in progress hold {self.reserved_bytes} bytes of bodies, and {size_bytes} more do not fit "
                f"into {self._limit_bytes}",
                closes_connection=True,
            )
        self.reserved_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """Return reserved bytes."""
        self.reserved_bytes -= size_bytes
