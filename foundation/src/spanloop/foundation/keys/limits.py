"""Limits of rate, concurrency and body size by API key.

Invariant: a refused request holds nothing, and each refusal by rate or concurrency says when to try again, so that a
client that retries gets through. Each process counts by itself. Requests without a key have no limit.
"""

import math
import time
from collections.abc import Callable
from http import HTTPStatus
from types import TracebackType
from typing import Final, NamedTuple, Self

from spanloop.foundation.settings import KeyLimits, Limits

_CONCURRENCY_RETRY_S: Final = 1


class LimitExceeded(NamedTuple):
    """Why a request is refused now."""

    status: HTTPStatus
    """429 for the rate, 503 for concurrent requests."""
    message: str
    retry_after_s: int


class Admission:
    """A request within the limits; it ends with the block.

    Args:
        counted: Its key; None for a request without limits.
        key: Name of its key; empty without one.
    """

    __slots__ = ("_counted", "body_bytes", "key")

    def __init__(self, counted: "_KeyState | None" = None, key: str = "") -> None:
        self._counted = counted
        self.key = key
        self.body_bytes = None if counted is None else counted.limits.body_bytes
        """Limit of the body's size; None without one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the request; a second call changes nothing."""
        if self._counted is not None:
            self._counted.running -= 1
            self._counted = None


class KeyLimiter:
    """Counts the requests of each key; used on one event loop.

    Args:
        limits: The limits.
        clock: Seconds, monotonic.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._states: dict[str, _KeyState] = {}
        self._has_limits = bool(limits.model_dump(exclude_defaults=True))

    def admit(self, name: str) -> Admission | LimitExceeded:
        """Admit a request of the key with this name; the caller ends the admission. Empty: a request without a key."""
        if not self._has_limits or not name:
            return Admission(key=name)
        state = self._states.get(name)
        if state is None:
            state = self._states[name] = _KeyState(name, self._limits.of(name), self._clock())
        return state.admit(self._clock())


class _KeyState:
    """A token bucket that holds the requests of one second, and a count of running requests."""

    __slots__ = ("_bucket", "_filled_s", "_name", "_tokens", "limits", "running")

    def __init__(self, name: str, limits: KeyLimits, now_s: float) -> None:
        self._name = name
        self.limits = limits
        self.running = 0
        self._bucket = max(1.0, limits.requests_per_s or 0.0)
        self._tokens = self._bucket
        self._filled_s = now_s

    def admit(self, now_s: float) -> Admission | LimitExceeded:
        most = self.limits.concurrent_requests
        if most is not None and self.running >= most:
            message = f"the API key {self._name} has {self.running} requests in progress; its limit is {most}"
            return LimitExceeded(HTTPStatus.SERVICE_UNAVAILABLE, message, _CONCURRENCY_RETRY_S)
        rate = self.limits.requests_per_s
        if rate is not None:
            self._tokens = min(self._bucket, self._tokens + (now_s - self._filled_s) * rate)
            self._filled_s = now_s
            if self._tokens < 1.0:
                message = f"the API key {self._name} has a limit of {rate:g} requests a second"
                wait_s = max(1, math.ceil((1.0 - self._tokens) / rate))
                return LimitExceeded(HTTPStatus.TOO_MANY_REQUESTS, message, wait_s)
            self._tokens -= 1.0
        self.running += 1
        return Admission(self, self._name)
