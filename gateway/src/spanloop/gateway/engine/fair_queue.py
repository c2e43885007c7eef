"""The queue of requests that wait for an engine, with fair shares among API keys.

Invariant: the next request is one of the key with the fewest running requests; keys with equally many take turns. A
full queue loses the newest request of the key with the most waiting ones, so no key crowds out another.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class WaitingRequest(Generic[T]):
    """One request that waits for what it needs."""

    key: str
    """API key of the caller; empty without one."""
    need: Any
    is_repeated: bool
    """Whether it ran already: it goes first, and a full queue keeps it."""
    result: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class FairQueue(Generic[T]):
    """The waiting requests of each key, in order of arrival."""

    def __init__(self) -> None:
        self._by_key: dict[str, deque[WaitingRequest[T]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, request: WaitingRequest[T]) -> None:
        """Add a request."""
        waiting = self._by_key.setdefault(request.key, deque())
        if request.is_repeated:
            waiting.appendleft(request)
        else:
            waiting.append(request)
        self._length += 1

    def remove(self, request: WaitingRequest[T]) -> bool:
        """Remove a request; return whether it was there. The key's turn is over."""
        waiting = self._by_key.get(request.key)
        if waiting is None or request not in waiting:
            return False
        waiting.remove(request)
        self._length -= 1
        del self._by_key[request.key]
        if waiting:
            self._by_key[request.key] = waiting
        return True

    def in_turn(self, running: Mapping[str, int]) -> Iterator[WaitingRequest[T]]:
        """Yield the requests, the next first.

        Args:
            running: Number of running requests by key.
        """
        for key in sorted(self._by_key, key=lambda key: running.get(key, 0)):
            yield from tuple(self._by_key[key])

    def newest_of_longest(self) -> WaitingRequest[T] | None:
        """Return the newest request of the key with the most waiting ones; None where each of its requests ran."""
        waiting = max(self._by_key.values(), key=len, default=deque[WaitingRequest[T]]())
        return next((request for request in reversed(waiting) if not request.is_repeated), None)
