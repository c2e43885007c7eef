"""Acquire, renew, lose and release a lease.

Invariant: a holder counts the time of its lease from before the renewal, by its own monotonic clock, and less a margin.
So it knows that it may have lost the lease before another process can take it, whatever the clocks of the machines say.
A lease is free when it was released, when it expired, and when its holder can be seen to have ended.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, NamedTuple, Protocol

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.processes.identity import ProcessIdentity

from .heartbeat import Heartbeat

POLL_S: Final = 0.2
_QUIET_S: Final = 2.0
"""A wait that is not reported."""


class LeaseLostError(SpanloopError):
    """Raised when another process has, or has had, the lease; what this process read may be out of date."""


class WaitStoppedError(Exception):
    """The process was told to stop while it waited for a lease."""


class StoredLease(NamedTuple):
    """A lease in its store."""

    owner: str
    """A process, as `ProcessIdentity`, and what follows a space; empty when the lease is free."""
    left_s: float
    """Time until it expires, by the store's clock."""

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it: it was released, has expired, or its owner has certainly ended."""
        return not self.owner or self.left_s <= 0 or has_ended(self.owner)


class LeaseStore(Protocol):
    """Where one lease is kept, as one process sees it that may hold it."""

    @property
    def duration_s(self) -> float:
        """Time after which a lease that is not renewed is free."""
        ...

    def read(self) -> StoredLease:
        """Return who holds it."""
        ...

    def take(self) -> int | None:
        """Take it if it is free; return its fencing token (0 in a store that has none), None if another was faster."""
        ...

    def renew(self, token: int) -> bool:
        """Extend it; return False when another process has it, or has had it since."""
        ...

    def release(self, token: int) -> None:
        """Make it free, unless another process has it."""
        ...


class Term:
    """The time for which a lease is certainly held, by this process's clock.

    Args:
        duration_s: Duration of the lease in its store.
        margin_s: Time before its end in which nothing is begun.
        elapsed_s: A monotonic clock in seconds.
    """

    def __init__(
        self, duration_s: float, *, margin_s: float = 0.0, elapsed_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._duration_s = duration_s
        self._margin_s = margin_s
        self._elapsed_s = elapsed_s
        self._renewed_s = -float("inf")

    def now_s(self) -> float:
        """Return the time, to be read before a renewal and given to `renewed`."""
        return self._elapsed_s()

    def renewed(self, began_s: float) -> None:
        """Start the term again, at the time when its renewal began."""
        self._renewed_s = began_s

    @property
    def ends_s(self) -> float:
        """When the term ends, less the margin, by the monotonic clock."""
        return self._renewed_s + self._duration_s - self._margin_s

    @property
    def is_valid(self) -> bool:
        """Whether the lease cannot have expired."""
        return self._elapsed_s() < self.ends_s

    @property
    def is_due(self) -> bool:
        """Whether to renew it: a third of it has passed."""
        return self._elapsed_s() - self._renewed_s >= self._duration_s / 3


class Lease:
    """One process's claim to a lease.

    Args:
        name: Of the lease, for errors.
        store: Where it is kept.
        margin_s: Time before its end in which nothing is begun.
        settle_s: Time before the lease of a process that has ended is taken; what it sent may arrive until then.
        elapsed_s: A monotonic clock in seconds.
    """

    def __init__(
        self,
        name: str,
        store: LeaseStore,
        *,
        margin_s: float = 0.0,
        settle_s: float = 0.0,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._store = store
        self._settle_s = settle_s
        self._term = Term(store.duration_s, margin_s=margin_s, elapsed_s=elapsed_s)
        self._ended_since_s: float | None = None
        self._token: int | None = None

    @property
    def token(self) -> int | None:
        """The fencing token; None while this process does not hold the lease."""
        return self._token

    @property
    def ends_s(self) -> float:
        """Until when this process holds the lease, by its monotonic clock, if it is not renewed again."""
        return self._term.ends_s

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lease, by its own clock: its last renewal has not expired."""
        return self._token is not None and self._term.is_valid

    def acquire(self) -> bool:
        """Take the lease if it is free; return whether this process holds it now."""
        return self._may_take(self._store.read()) and self._take()

    def wait(
        self,
        should_stop: Callable[[], bool] = lambda: False,
        on_wait: Callable[[str], None] = lambda _: None,
        meanwhile: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Acquire the lease, however long that takes.

        Args:
            should_stop: Asked again and again whether to give up.
            on_wait: Called once with the holder, when the wait is longer than two seconds.
            meanwhile: Called again and again with the holder, to do something else during the wait.

        Raises:
            WaitStoppedError: ``should_stop`` returned True.
        """
        began_s, is_reported = time.monotonic(), False
        while True:
            stored = self._store.read()
            if self._may_take(stored):
                if self._take():
                    return
            elif not is_reported and time.monotonic() - began_s > _QUIET_S:
                on_wait(stored.owner)
                is_reported = True
            if should_stop():
                raise WaitStoppedError
            meanwhile(stored.owner)
            time.sleep(POLL_S)

    def renew(self) -> None:
        """Extend the lease.

        Raises:
            LeaseLostError: Another process has it, or has had it since.
        """
        began_s, token = self._term.now_s(), self._token
        if token is None or not self._store.renew(token):
            self.lose()
            raise LeaseLostError(f"The lease {self._name!r} is lost: another process has taken it.")
        self._term.renewed(began_s)

    def hold(self) -> bool:
        """Take the lease if it is free, renew it when it is time; return whether this process holds it."""
        if self._token is not None:
            if not self._term.is_due:
                return True
            try:
                self.renew()
            except LeaseLostError:
                return self.acquire()
            return True
        return self.acquire()

    def check(self) -> None:
        """Check before a write that the lease is held; ask its store only when it was not renewed in time.

        Raises:
            LeaseLostError: Another process has it.
        """
        if not self.is_held:
            self.renew()

    def lose(self) -> None:
        """Forget the lease, because another process has it."""
        self._token = None

    def release(self) -> None:
        """Let another process take the lease at once; does nothing when it is not held."""
        token, self._token = self._token, None
        if token is not None:
            self._store.release(token)

    @contextmanager
    def renewing(self, interval_s: float, tolerated: type[Exception]) -> Generator[None]:
        """Renew the lease in a thread while the block runs, until it is lost.

        Args:
            interval_s: Time between renewals.
            tolerated: Error of a store that is away; the next renewal may succeed.
        """

        def beat() -> bool:
            try:
                self.renew()
            except LeaseLostError:
                return False  # the holder notices it before its next write
            except tolerated:
                return True
            return True

        with Heartbeat(beat, interval_s, name=f"lease-{self._name}"):
            yield

    def _may_take(self, stored: StoredLease) -> bool:
        if not stored.owner or stored.left_s <= 0:
            return True
        if not has_ended(stored.owner):
            self._ended_since_s = None
            return False
        now_s = self._term.now_s()
        if self._ended_since_s is None:
            self._ended_since_s = now_s
        return now_s - self._ended_since_s >= self._settle_s

    def _take(self) -> bool:
        began_s = self._term.now_s()
        self._token = self._store.take()
        if self._token is None:
            return False
        self._term.renewed(began_s)
        return True


def has_ended(owner: str) -> bool:
    """Return whether the process of an owner has certainly ended; False for one of another machine."""
    process = ProcessIdentity.parse(owner.partition(" ")[0])
    return process is not None and process.has_ended()
