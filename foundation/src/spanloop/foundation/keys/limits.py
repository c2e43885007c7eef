"""Limits of rate, concurrency, tokens and body size by API key.

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
_MINUTE_S: Final = 60.0


class LimitExceeded(NamedTuple):
    """Why a request is refused now."""

    status: HTTPStatus
    """429 for requests and tokens, 503 for concurrent requests."""
    message: str
    retry_after_s: int
    limit: str
    """Name of the setting."""


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

    def charge(self, tokens: int) -> None:
        """Count tokens that the request used, before its end."""
        if self._counted is not None:
            self._counted.charge(tokens)

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
    """Buckets of one second's requests and one minute's tokens, and a count of running requests."""

    __slots__ = ("_name", "_requests", "_tokens", "limits", "running")

    def __init__(self, name: str, limits: KeyLimits, now_s: float) -> None:
        self._name = name
        self.limits = limits
        self.running = 0
        rate, tokens = limits.requests_per_s, limits.tokens_per_min
        self._requests = None if rate is None else _Bucket(max(1.0, rate), rate, now_s)
        self._tokens = None if tokens is None else _Bucket(float(tokens), tokens / _MINUTE_S, now_s)

    def admit(self, now_s: float) -> Admission | LimitExceeded:
        limits, name = self.limits, self._name
        most = limits.concurrent_requests
        if most is not None and self.running >= most:
            message = f"the API key {name} has {self.running} requests in progress; its limit is {most}"
            busy = HTTPStatus.SERVICE_UNAVAILABLE
            return LimitExceeded(busy, message, _CONCURRENCY_RETRY_S, "concurrent_requests")
        # A request that is answered may use any number of tokens, so one left is enough.
        if self._tokens is not None and (wait_s := self._tokens.wait_s(1.0, now_s)):
            message = f"the API key {name} has a limit of {limits.tokens_per_min} tokens a minute"
            return LimitExceeded(HTTPStatus.TOO_MANY_REQUESTS, message, wait_s, "tokens_per_min")
        if self._requests is not None:
            if wait_s := self._requests.wait_s(1.0, now_s):
                message = f"the API key {name} has a limit of {limits.requests_per_s:g} requests a second"
                return LimitExceeded(HTTPStatus.TOO_MANY_REQUESTS, message, wait_s, "requests_per_s")
            self._requests.level -= 1.0
        self.running += 1
        return Admission(self, name)

    def charge(self, tokens: int) -> None:
        if self._tokens is not None:
            self._tokens.level -= tokens


class _Bucket:
    """A token bucket; its level may be negative.

    Args:
        size: Its content when it is full.
        rate: What flows in, a second.
        now_s: The time; it is full then.
    """

    __slots__ = ("_filled_s", "_rate", "_size", "level")

    def __init__(self, size: float, rate: float, now_s: float) -> None:
        self._size = self.level = size
        self._rate = rate
        self._filled_s = now_s

    def wait_s(self, amount: float, now_s: float) -> int:
        """Return the seconds until it holds ``amount``, rounded up; 0 if it does."""
        self.level = min(self._size, self.level + (now_s - self._filled_s) * self._rate)
        self._filled_s = now_s
        return 0 if self.level >= amount else max(1, math.ceil((amount - self.level) / self._rate))
