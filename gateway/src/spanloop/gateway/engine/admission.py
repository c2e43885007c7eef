"""Admission control: which requests may use which engine, and with which weights.

Invariant: while a slot exists, the deployment it names is loaded in its engine. So the version in a capture is the
version that sampled it (see `EngineGate`). Requests
beyond the limits wait in a `FairQueue`, and those beyond its limit are refused.
"""

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from ..api_errors import ApiError, UnavailableError
from .fair_queue import FairQueue, WaitingRequest
from .gate import EngineEndpoint, EngineGate, EngineSlot

_SLACK: Final = 4
"""Requests by which the engine of a conversation may be busier than twice the least busy one."""
_MAX_RETRY_S: Final = 60
_SMOOTHING: Final = 0.1


class Caller(NamedTuple):
    """The request that asks for an engine."""

    key: str = ""
    """API key, which shares are fair among; empty without one."""
    conversation: bytes = b""
    """Names the conversation: its requests go to one engine, whose prefix cache holds it. Empty: to any."""
    is_repeated: bool = False
    """Whether it was admitted before and nothing of an answer was sent."""
    failed: EngineGate | None = None
    """The engine that did not answer it: another one is taken, if there is one."""


ANYONE: Final = Caller()
"""A request without key and conversation."""


class AdmissionLimits(NamedTuple):
    """Limits of `AdmissionControl`."""

    running: int = 256
    """Requests of each engine at the same time."""
    waiting: int = 1024
    """Requests that wait, for room or for new weights."""


_DEFAULT_LIMITS: Final = AdmissionLimits()


class _EngineNeed(NamedTuple):
    model: str
    caller: Caller


class AdmissionControl:
    """Admits requests to the engines whose gates are open.

    Args:
        reason: Why the gates are closed at first.
        engines: Number of engines.
        limits: Of running and waiting requests.
        on_refusal: Called when the queue is full.
    """

    def __init__(
        self,
        reason: UnavailableError,
        *,
        engines: int = 1,
        limits: AdmissionLimits = _DEFAULT_LIMITS,
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        self.gates = tuple(EngineGate(reason, self._on_change, number=number) for number in range(engines))
        """The gates of the engines; those of the first model come first."""
        self._next_number = engines
        self._limits = limits
        self._on_refusal = on_refusal
        self._queue = FairQueue[EngineSlot]()
        self._running = Counter[str]()
        self._changed = asyncio.Event()
        self._mean_s = 1.0
        """Moving mean of a request's time in an engine."""

    def add_gate(self, model: str, reason: UnavailableError) -> EngineGate:
        """Return the gate of a further engine, of a model beside the first one; it is closed for ``reason``."""
        gate = EngineGate(reason, self._on_change, number=self._next_number, model=model)
        self._next_number += 1
        self.gates = (*self.gates, gate)
        return gate

    def remove_gate(self, gate: EngineGate) -> None:
        """Forget the gate of an engine that ended; requests that wait for it alone are rejected."""
        self.gates = tuple(each for each in self.gates if each is not gate)
        self._on_change()

    @property
    def endpoint(self) -> EngineEndpoint | None:
        """The first engine in use; None while all are held or closed."""
        return next(iter(self.endpoints), None)

    @property
    def endpoints(self) -> tuple[EngineEndpoint, ...]:
        """The engines in use."""
        return tuple(gate.endpoint for gate in self.gates if gate.endpoint is not None)

    @property
    def is_held(self) -> bool:
        """Whether new requests wait for an engine to open."""
        return not self.endpoints and any(gate.is_held for gate in self.gates)

    @property
    def running(self) -> int:
        """Number of requests that use an engine now."""
        return sum(gate.running for gate in self.gates)

    @property
    def waiting(self) -> int:
        """Number of requests that wait."""
        return len(self._queue)

    async def settled(self) -> None:
        """Wait until requests are admitted or rejected."""
        while self.is_held:
            await self._changed.wait()

    def has_other(self, slot: EngineSlot) -> bool:
        """Return whether another engine than that of ``slot`` serves the same model now."""
        name = slot.endpoint.deployment.name
        return slot.gate in self.gates and any(
            gate is not slot.gate and gate.endpoint is not None and gate.endpoint.deployment.name == name
            for gate in self.gates
        )

    @asynccontextmanager
    async def admit(self, model: str, caller: Caller = ANYONE) -> AsyncGenerator[EngineSlot]:
        """Wait for an engine, then allow the block to use it.

        Raises:
            UnavailableError: No engine runs, or too many requests wait.
            ApiError: 404, no engine serves the model.
        """
        slot = await self._enter(_EngineNeed(model, caller))
        began_s = asyncio.get_running_loop().time()
        try:
            yield slot
        finally:
            self._mean_s += _SMOOTHING * (asyncio.get_running_loop().time() - began_s - self._mean_s)
            self._leave(slot, caller.key)

    async def _enter(self, need: _EngineNeed) -> EngineSlot:
        # Whatever waits already finds no room, so nothing is overtaken.
        slot = self._take(need)
        return slot or await self._wait(WaitingRequest(need.caller.key, need, need.caller.is_repeated))

    async def _wait(self, request: WaitingRequest[EngineSlot]) -> EngineSlot:
        self._queue.push(request)
        if len(self._queue) > self._limits.waiting:
            self._refuse(self._queue.newest_of_longest())
        try:
            return await request.result
        except asyncio.CancelledError:
            if not self._queue.remove(request) and not request.result.cancelled() and not request.result.exception():
                self._leave(request.result.result(), request.key)
            raise

    def _leave(self, slot: EngineSlot, key: str) -> None:
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]
        slot.gate.leave(slot)

    def _refuse(self, request: WaitingRequest[EngineSlot] | None) -> None:
        if request is None or not self._queue.remove(request) or request.result.done():
            return
        self._on_refusal()
        room = max(1, len(self.endpoints)) * self._limits.running
        wait_s = min(_MAX_RETRY_S, max(1, math.ceil(self._mean_s * (1 + len(self._queue) / room))))
        request.result.set_exception(
            UnavailableError(
                f"The model is overloaded: {len(self._queue)} requests wait already. Try again in {wait_s} s.",
                code="overloaded",
                retry_after_s=wait_s,
            )
        )

    def _on_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit as many waiting requests as there is room for."""
        while self._settle_next():
            pass

    def _settle_next(self) -> bool:
        """Admit or reject the next request that needs not wait; return False if all wait."""
        blocked = set[str]()
        for request in self._queue.in_turn(self._running):
            model = request.need.model
            if model not in blocked and self._settle(request):
                return True
            blocked.add(model)
        return False

    def _settle(self, request: WaitingRequest[EngineSlot]) -> bool:
        """Admit or reject a request; return False if it waits on."""
        if request.result.done():
            return self._queue.remove(request)
        try:
            slot = self._take(request.need)
        except ApiError as error:
            self._queue.remove(request)
            request.result.set_exception(error.with_traceback(None))
            return True
        if slot is None:
            return False
        self._queue.remove(request)
        request.result.set_result(slot)
        return True

    def _take(self, need: _EngineNeed) -> EngineSlot | None:
        """Return a slot; None while the request has to wait. It raises as `admit`."""
        opened = [(gate, gate.endpoint) for gate in self.gates if gate.endpoint is not None]
        serving = [each for each in opened if each[0].accepts(need.model)]
        if not serving:
            self._check_pending(need.model)
            return None
        others = [each for each in serving if each[0] is not need.caller.failed] or serving
        free = [each for each in others if each[0].running < self._limits.running]
        if not free:
            return None
        gate, endpoint = free[self._choose([gate for gate, _ in free], need.caller.conversation)]
        self._running[need.caller.key] += 1
        return gate.take(endpoint)

    def _check_pending(self, model: str) -> None:
        """Raise unless an engine that is held may serve the model soon."""
        if any(gate.may_accept(model) for gate in self.gates):
            return
        reasons = [gate.reason for gate in self.gates if gate.reason is not None and gate.accepted(model)]
        if reasons:
            raise _soonest(reasons)
        names = dict.fromkeys(name for gate in self.gates for name in gate.accepted_names)
        if names:
            served = ", ".join(map(repr, names))
            raise ApiError(404, f"The model {model!r} is not served here; served: {served}.", code="model_not_found")
        raise _soonest([gate.reason for gate in self.gates if gate.reason is not None])

    def _choose(self, gates: Sequence[EngineGate], conversation: bytes) -> int:
        """Return the index of the conversation's engine, or of the least busy one if that has much less to do."""
        least = min(range(len(gates)), key=lambda at: gates[at].running)
        if not conversation or len(gates) == 1:
            return least
        # Rendezvous hashing: an engine that goes away moves its own conversations only, and gets them back.
        preferred = max(range(len(gates)), key=lambda at: _weight(conversation, gates[at].number))
        return preferred if gates[preferred].running <= 2 * gates[least].running + _SLACK else least


def _soonest(reasons: Sequence[UnavailableError]) -> UnavailableError:
    """Return a reason that passes by itself, if there is one, without where it was raised before."""
    reason = next((reason for reason in reasons if reason.retry_after_s is not None), reasons[0])
    return reason.with_traceback(None)


def _weight(conversation: bytes, engine: int) -> bytes:
    return hashlib.blake2b(b"%d " % engine + conversation, digest_size=8).digest()
