"""Who may talk to the engine, and with which weights.

Invariant: while one lease is out, the deployment it names is the one in the engine. So the version on a capture is
the version that sampled it: weights change only between `Gate.drain` and `Gate.open`, when no lease is out.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from .api_errors import AnswerError, UnavailableError
from .deployment import Deployment


@dataclass(frozen=True, slots=True)
class Route:
    """An engine that answers."""

    deployment: Deployment
    base_url: str
    served_name: str
    """What the engine itself calls its model."""

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """What a caller may put into ``model``."""
        return tuple(dict.fromkeys((self.deployment.label, self.deployment.name, self.served_name)))


@dataclass(eq=False, slots=True)
class Lease:
    """Permission for one request, for as long as its block lasts."""

    route: Route
    preempted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the swap waits no longer: stop using the engine at once."""


class Gate:
    """Open with a route, held during a swap, or shut with a reason."""

    def __init__(self, reason: UnavailableError) -> None:
        self._route: Route | None = None
        self._reason: UnavailableError | None = reason
        self._leases: set[Lease] = set()
        self._changed = asyncio.Event()
        self._waiting = 0

    @property
    def route(self) -> Route | None:
        """The open route."""
        return self._route

    @property
    def is_held(self) -> bool:
        """New requests have to wait."""
        return self._route is None and self._reason is None

    @property
    def running(self) -> int:
        """Requests that use the engine now."""
        return len(self._leases)

    @property
    def waiting(self) -> int:
        """Requests that are held."""
        return self._waiting

    def open(self, route: Route) -> None:
        """Let requests through. The engine must hold the route's weights already."""
        self._route, self._reason = route, None
        self._notify()

    def hold(self) -> None:
        """Let new requests wait; running ones go on."""
        self._route, self._reason = None, None
        self._notify()

    def shut(self, reason: UnavailableError) -> None:
        """Refuse new and held requests."""
        self._route, self._reason = None, reason
        self._notify()

    async def drain(self, timeout_s: float) -> int:
        """Wait until no lease is out; after ``timeout_s`` preempt the rest and wait for them to let go.

        Returns:
            How many were preempted.
        """
        preempted = 0
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_idle()
        except TimeoutError:
            preempted = len(self._leases)
            for lease in self._leases:
                lease.preempted.set()
            await self._until_idle()
        return preempted

    @asynccontextmanager
    async def admit(self, model: str) -> AsyncGenerator[Lease]:
        """Wait while held, then use the engine for the length of the block.

        Raises:
            UnavailableError: The gate is shut.
            AnswerError: 404, the model is not the one that is served.
        """
        lease = Lease(await self._enter(model))
        self._leases.add(lease)
        try:
            yield lease
        finally:
            self._leases.discard(lease)
            self._notify()

    async def _enter(self, model: str) -> Route:
        self._waiting += 1
        try:
            while self._route is None:
                if self._reason is not None:
                    raise self._reason.with_traceback(None)
                await self._changed.wait()
        finally:
            self._waiting -= 1
        route = self._route
        if model and model not in route.accepted_names:
            served = ", ".join(repr(name) for name in route.accepted_names)
            raise AnswerError(404, f"The model {model!r} is not served here; served: {served}.", code="model_not_found")
        return route

    async def _until_idle(self) -> None:
        while self._leases:
            await self._changed.wait()

    def _notify(self) -> None:
        # Waiters check their own condition again, so waking all of them is right.
        self._changed.set()
        self._changed = asyncio.Event()
