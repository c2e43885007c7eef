"""The candidate of a canary: its engine beside the champion's, and the admission to it.

Invariant: requests reach the candidate only while its engine serves its weights. Waiting for it never takes longer than
10 s once the champion serves.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from spanloop.foundation.errors import ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings

from ..api_errors import UnavailableError
from ..engine.admission import AdmissionControl
from ..engine.deployment import Deployment
from ..engine.gate import EngineSlot
from ..engine.lifecycle import NO_MODEL, EngineLifecycle
from ..engine.upstream_weights import UpstreamWeights
from ..engine.vllm_server import Engine
from .canary import Canary

_WAIT_S: Final = 10.0
NO_CANARY: Final = UnavailableError("The canary is over.", code="no_canary")


class _CandidateFile:
    """The candidate as a lifecycle's last deployment."""

    def __init__(self, candidate: Deployment) -> None:
        self._candidate = candidate

    def read(self) -> Deployment:
        return self._candidate

    def write(self, deployment: Deployment) -> None:
        """Keep nothing: ``canary.json`` has it."""


class Candidate:
    """The candidate of a running canary.

    Args:
        canary: What runs.
        engine: Its engine.
        champion: Admission to the champion.
        settings: The gateway's.
        data_dir: The gateway's.
        weights: Of an external server.
        is_shared: Whether the engine is the champion's too.
        on_end: Called when the engine has ended.
    """

    def __init__(
        self,
        canary: Canary,
        engine: Engine,
        champion: AdmissionControl,
        settings: GatewaySettings,
        *,
        data_dir: DataDir,
        weights: UpstreamWeights,
        is_shared: bool,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.canary = canary
        self.is_shared: Final = is_shared
        self.admission: Final = AdmissionControl(NO_CANARY)
        self._engine = engine
        self._on_end = on_end
        self._champion = champion
        self.lifecycle: Final = EngineLifecycle(
            engine,
            self.admission.gates[0],
            _CandidateFile(canary.candidate),
            settings.model_copy(update={"upstream": canary.upstream}),
            data_dir=data_dir,
            upstream_weights=weights,
        )

    async def serve(self) -> None:
        """Start the engine; return when it serves the candidate.

        Raises:
            SpanloopError: It cannot serve it; nothing of it is left.
        """
        if not self.canary.upstream:
            try:
                await self.lifecycle.deploy(self.canary.candidate)
            except ServiceError as error:
                raise ServiceError(
                    f"{error.what.removesuffix(NO_MODEL)}\n{self.canary.champion} serves as before.",
                    next_step=error.next_step,
                ) from error
            return
        await self._engine.start("")
        self.lifecycle.start()
        await self.admission.settled()
        if self.admission.endpoint is None:
            raise ServiceError(f"The upstream {self.canary.upstream} cannot be used: {self.lifecycle.status.error}")

    async def suspend(self, reason: UnavailableError) -> None:
        """Free the engine's memory, as `EngineLifecycle.suspend`; an external server stays as it is."""
        if self._engine.can_restart:
            await self.lifecycle.suspend(reason)

    async def resume(self) -> None:
        """Start the engine that `suspend` stopped."""
        await self.lifecycle.resume()

    @contextlib.asynccontextmanager
    async def admit(self) -> AsyncGenerator[EngineSlot]:
        """Allow the block to use the candidate; wait while it starts.

        Raises:
            UnavailableError: It does not serve now.
        """
        await self._wait()
        if self.admission.is_held:
            raise UnavailableError("The candidate is starting.", code="candidate_starting")
        async with self.admission.admit("") as slot:
            yield slot

    async def _wait(self) -> None:
        if not self.admission.is_held:
            return
        waits = [asyncio.ensure_future(each) for each in (self.admission.settled(), self._champion_waited_for())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _champion_waited_for(self) -> None:
        await self._champion.settled()
        await asyncio.sleep(_WAIT_S)

    async def end(self) -> None:
        """Let running requests finish, then stop the engine."""
        gate = self.admission.gates[0]
        gate.close(NO_CANARY)
        await gate.drain(5.0)
        await self.lifecycle.close()
        self._on_end()
