"""The entrance to one engine: which deployment it serves now, and the requests that use it.

Invariant: weights change only between `EngineGate.drain` and `EngineGate.open`, when the engine has no slot.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..api_errors import UnavailableError
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
    """Permission for one request to use an engine; ends with the block of `AdmissionControl.admit`."""

    gate: "EngineGate"
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


class EngineGate:
    """The entrance to one engine: it admits requests (open), lets them wait (held), or rejects them (closed).

    Args:
        reason: Why it is closed at first.
        on_change: Called when it opens, holds or closes, and when a slot ends.
        number: Of the engine; no two gates of an `AdmissionControl` have the same.
        model: The name of the model that is served beside the first one; empty for an engine of the first, which
            answers requests that name no model.
    """

    def __init__(
        self, reason: UnavailableError, on_change: Callable[[], None], *, number: int = 0, model: str = ""
    ) -> None:
        self.number: Final = number
        self.model: Final = model
        self._endpoint: EngineEndpoint | None = None
        self._reason: UnavailableError | None = reason
        self.last_names: tuple[str, ...] = ()
        """The names of the model that it admitted to last."""
        self._slots: set[EngineSlot] = set()
        self._on_change = on_change
        self._changed = asyncio.Event()

    @property
    def endpoint(self) -> EngineEndpoint | None:
        """The engine in use; None while held or closed."""
        return self._endpoint

    @property
    def reason(self) -> UnavailableError | None:
        """Why it is closed; None while it is not."""
        return self._reason

    @property
    def is_held(self) -> bool:
        """Whether requests wait for it."""
        return self._endpoint is None and self._reason is None

    @property
    def running(self) -> int:
        """Number of requests that use the engine now."""
        return len(self._slots)

    @property
    def accepted_names(self) -> tuple[str, ...]:
        """The values of ``model`` for which it admits requests; none while it is held or closed."""
        return () if self._endpoint is None else self.last_names

    def accepts(self, model: str) -> bool:
        """Return whether it admits requests for ``model`` now; the empty name is that of the first model."""
        return self._endpoint is not None and self.accepted(model)

    def accepted(self, model: str) -> bool:
        """Return whether it admitted requests for ``model`` when it was open last."""
        return model in self.last_names if model else not self.model

    def may_accept(self, model: str) -> bool:
        """Return whether it is held and may admit requests for ``model`` when it opens."""
        return self.is_held and (not self.model or model.partition("@")[0] == self.model)

    def _names(self, endpoint: EngineEndpoint) -> tuple[str, ...]:
        # Engines share their own name for a model, so it is the first model's.
        return (endpoint.deployment.label, endpoint.deployment.name) if self.model else endpoint.accepted_names

    def open(self, endpoint: EngineEndpoint) -> None:
        """Admit requests. The engine must have loaded the endpoint's weights already."""
        self._endpoint, self._reason = endpoint, None
        self.last_names = self._names(endpoint)
        self._notify()

    def hold(self) -> None:
        """Admit no request; running ones continue."""
        self._endpoint, self._reason = None, None
        self._notify()

    def close(self, reason: UnavailableError) -> None:
        """Reject requests with ``reason``."""
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

    def take(self, endpoint: EngineEndpoint) -> EngineSlot:
        """Return a new slot."""
        slot = EngineSlot(self, endpoint)
        self._slots.add(slot)
        return slot

    def leave(self, slot: EngineSlot) -> None:
        """End a slot."""
        self._slots.discard(slot)
        self._notify()

    async def _until_idle(self) -> None:
        while self._slots:
            await self._changed.wait()

    def _notify(self) -> None:
        # Each waiter checks its own condition again, so all of them are woken.
        self._changed.set()
        self._changed = asyncio.Event()
        self._on_change()
