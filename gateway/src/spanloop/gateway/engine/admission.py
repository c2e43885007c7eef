"""Admission control: which requests may use the engine, and with which weights.

Invariant: while a slot exists, the deployment it names is loaded in the engine. So the version in a capture is the
version that sampled it: weights change only between `drain` and `open` of `AdmissionControl`, when no slot exists.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from ..api_errors import ApiError, UnavailableError
from .deployment import Deployment
from .facts import EngineFacts


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """A running engine and the deployment it serves."""

    deployment: Deployment
    base_url: str
    served_name: str
    """The engine's own name for the model."""
    facts: EngineFacts = field(default_factory=EngineFacts)

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The values of ``model`` that requests may use."""
        return tuple(dict.fromkeys((self.deployment.label, self.deployment.name, self.served_name)))


@dataclass(eq=False, slots=True)
class EngineSlot:
    """Permission for one request to use the engine; ends with the block of `AdmissionControl.admit`."""

    endpoint: EngineEndpoint
    is_preempted: bool = False
    """Whether a swap no longer waits: the request must stop using the engine at once."""
    on_preempt: Callable[[], None] | None = None
    """Called when that happens."""

    def preempt(self) -> None:
        """Make the request stop using the engine."""
        self.is_preempted = True
        if self.on_preempt is not None:
            self.on_preempt()


class AdmissionControl:
    """Admits requests (open), queues them during a swap (held), or rejects them with a reason (closed)."""

    def __init__(self, reason: UnavailableError) -> None:
        self._endpoint: EngineEndpoint | None = None
        self._reason: UnavailableError | None = reason
        self._slots: set[EngineSlot] = set()
        self._changed = asyncio.Event()
        self._waiting = 0

    @property
    def endpoint(self) -> EngineEndpoint | None:
        """The engine in use; None while held or closed."""
        return self._endpoint

    @property
    def is_held(self) -> bool:
        """Whether new requests wait."""
        return self._endpoint is None and self._reason is None

    @property
    def running(self) -> int:
        """Number of requests that use the engine now."""
        return len(self._slots)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return self._waiting

    async def settled(self) -> None:
        """Wait until requests are admitted or rejected."""
        while self.is_held:
            await self._changed.wait()

    def open(self, endpoint: EngineEndpoint) -> None:
        """Admit requests. The engine must have loaded the endpoint's weights already."""
        self._endpoint, self._reason = endpoint, None
        self._notify()

    def hold(self) -> None:
        """Make new requests wait; running ones continue."""
        self._endpoint, self._reason = None, None
        self._notify()

    def close(self, reason: UnavailableError) -> None:
        """Reject new and waiting requests with ``reason``."""
        self._endpoint, self._reason = None, reason
        self._notify()

    async def drain(self, timeout_s: float) -> int:
        """Wait until no slot exists; after ``timeout_s`` preempt the remaining ones and wait for their release.

        Returns:
            The number of preempted requests.
        """
        preempted = 0
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_idle()
        except TimeoutError:
            preempted = len(self._slots)
            for slot in tuple(self._slots):
                slot.preempt()
            await self._until_idle()
        return preempted

    @asynccontextmanager
    async def admit(self, model: str) -> AsyncGenerator[EngineSlot]:
        """Wait while held, then allow the block to use the engine.

        Raises:
            UnavailableError: Admission is closed.
            ApiError: 404, the engine serves another model.
        """
        slot = EngineSlot(await self._enter(model))
        self._slots.add(slot)
        try:
            yield slot
        finally:
            self._slots.discard(slot)
            self._notify()

    async def _enter(self, model: str) -> EngineEndpoint:
        self._waiting += 1
        try:
            while self._endpoint is None:
                if self._reason is not None:
                    raise self._reason.with_traceback(None)
                await self._changed.wait()
        finally:
            self._waiting -= 1
        endpoint = self._endpoint
        if model and model not in endpoint.accepted_names:
            served = ", ".join(repr(name) for name in endpoint.accepted_names)
            raise ApiError(404, f"The model {model!r} is not served here; served: {served}.", code="model_not_found")
        return endpoint

    async def _until_idle(self) -> None:
        while self._slots:
            await self._changed.wait()

    def _notify(self) -> None:
        # Each waiter checks its own condition again, so all of them are woken.
        self._changed.set()
        self._changed = asyncio.Event()
