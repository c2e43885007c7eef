"""The engine's life: deploy, hot swap, restart, stop, and getting up again by itself.

Invariant: the gate is open only while the engine answers with the weights of ``status.deployment``. One transition
runs at a time; a deployment that fails half-way leaves the previous one serving.
"""

import asyncio
import contextlib
import logging
import time
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.semconv.errors import ConfigurationError, ServiceError, SpanloopError

from .admission import Gate, Route
from .api_errors import UnavailableError
from .deployment import Deployment, DeploymentFile, ModelFolder
from .engine import Engine
from .settings import EXTERNAL_VERSION, GatewaySettings

_log: Final = logging.getLogger(__name__)
_LONGEST_BACKOFF_S: Final = 60.0
_STABLE_AFTER_S: Final = 60.0
_DEPLOY_NEXT: Final = "next: spanloop models deploy NAME"

NO_DEPLOYMENT: Final = UnavailableError(f"No model deployed; {_DEPLOY_NEXT}", code="no_deployment")


class EngineState(StrEnum):
    """What the engine does."""

    NO_DEPLOYMENT = "no_deployment"
    STARTING = "starting"
    SERVING = "serving"
    SWAPPING = "swapping"
    RESTARTING = "restarting"
    """It went away and is being started again; requests get 503."""
    PAUSED = "paused"
    """Stopped while a job trains, to be started again afterwards; requests get 503."""
    STOPPED = "stopped"
    """By ``/admin/stop``."""
    FAILED = "failed"
    """It does not come up; only a new deployment helps."""


_COMES_BACK: Final = frozenset({EngineState.SERVING, EngineState.RESTARTING, EngineState.PAUSED})
"""States in which the last deployment is the one to go back to."""


class Status(NamedTuple):
    """The engine at one moment."""

    state: EngineState
    deployment: Deployment | None
    error: str
    """What went wrong last, empty when nothing did since it serves."""
    restarts: int
    """How often it went away by itself."""
    start_duration_s: float
    """Of the last start or swap."""
    engine_pid: int | None


class Deployed(NamedTuple):
    """A deployment that answers."""

    deployment: Deployment
    method: str
    """``start``, ``restart``, ``hot_swap`` or ``unchanged``."""
    duration_s: float
    preempted: int
    """Running requests that the swap did not wait for any longer."""


class Control:
    """Owns the engine and the gate.

    Args:
        engine: A child or a foreign server.
        gate: Opened and shut from here only.
        file: Where the last deployment is kept.
        settings: Timeouts and limits.
    """

    def __init__(self, engine: Engine, gate: Gate, file: DeploymentFile, settings: GatewaySettings) -> None:
        self._engine = engine
        self._gate = gate
        self._file = file
        self._settings = settings
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._state = EngineState.NO_DEPLOYMENT
        self._deployment: Deployment | None = None
        self._folder: ModelFolder | None = None
        self._before_swap: tuple[float, ...] | None = None
        self._error = ""
        self._restarts = 0
        self._start_duration_s = 0.0

    @property
    def status(self) -> Status:
        """The engine now."""
        return Status(
            self._state, self._deployment, self._error, self._restarts, self._start_duration_s, self._engine.pid
        )

    def begin(self) -> None:
        """Bring up the last deployment, or the upstream, in the background; without one, wait to be told."""
        try:
            self._deployment = None if self._settings.upstream else self._file.read()
        except ConfigurationError as error:
            self._fail(error)
            return
        if self._deployment is None and not self._settings.upstream:
            return
        self._start_in_background()

    async def deploy(self, target: Deployment) -> Deployed:
        """Make the engine answer with ``target``; requests are held meanwhile.

        Raises:
            ConfigurationError: The folder is not a model's; nothing was touched.
            ServiceError: It did not come up; says which version serves now.
        """
        folder = await asyncio.to_thread(ModelFolder.read, Path(target.path))
        async with self._lock:
            began_s = time.monotonic()
            if self._state is EngineState.SERVING and target == self._deployment:
                return Deployed(target, "unchanged", 0.0, 0)
            previous = self._deployment if self._state in _COMES_BACK else None
            was_serving = self._state is EngineState.SERVING
            await self._end_keeper()
            self._state = EngineState.SWAPPING if was_serving else EngineState.STARTING
            self._gate.hold()
            self._before_swap = None
            preempted = await self._gate.drain(self._settings.drain_timeout_s)
            try:
                method = await self._bring_up(target, folder, was_serving=was_serving)
                await asyncio.to_thread(self._file.write, target)
            except SpanloopError as error:
                raise await self._go_back(target, previous, error) from error
            self._deployment, self._folder = target, folder
            self._start_duration_s = time.monotonic() - began_s
            self._serve(target)
            self._keep(is_up=True)
            _log.info("%s serves after %.1f s (%s)", target.label, self._start_duration_s, method)
            return Deployed(target, method, self._start_duration_s, preempted)

    async def stop(self) -> None:
        """Let running requests finish and end the engine; 503 until the next deployment or restart of the gateway."""
        async with self._lock:
            await self._shut_down(
                UnavailableError(f"The engine was stopped by an administrator; {_DEPLOY_NEXT}", code="engine_stopped")
            )
            self._state = EngineState.STOPPED
            _log.info("the engine is stopped")

    async def suspend(self, reason: UnavailableError) -> None:
        """End the engine as `stop` does, but so that `resume` brings it back; one that does not run stays as it is.

        Raises:
            ConfigurationError: The engine is not ours to stop.
        """
        if not self._engine.can_restart:
            raise ConfigurationError(
                "The gateway serves from an upstream that it did not start, so it cannot pause it.",
                next_step="stop the upstream by hand while training, or train without pausing",
            )
        async with self._lock:
            if self._state in {EngineState.SERVING, EngineState.STARTING, EngineState.RESTARTING}:
                await self._shut_down(reason)
                self._state = EngineState.PAUSED
                _log.info("the engine is paused")

    async def resume(self) -> None:
        """Start what `suspend` ended, in the background; requests are held meanwhile."""
        async with self._lock:
            if self._state is EngineState.PAUSED:
                _log.info("the engine is started again")
                self._start_in_background()

    async def close(self) -> None:
        """End the engine at once: the gateway ends."""
        self._gate.shut(UnavailableError("The gateway is shutting down.", code="shutting_down", retry_after_s=5))
        await self._end_keeper()
        await self._engine.stop()

    def _start_in_background(self) -> None:
        self._state = EngineState.STARTING
        self._gate.hold()
        self._keep(is_up=False)

    async def _shut_down(self, reason: UnavailableError) -> None:
        await self._end_keeper()
        self._gate.shut(reason)
        await self._gate.drain(self._settings.drain_timeout_s)
        await self._engine.stop()

    async def _bring_up(self, target: Deployment, folder: ModelFolder, *, was_serving: bool) -> str:
        if was_serving and self._folder is not None and self._folder.can_swap_to(folder):
            try:
                await self._hot_swap(target)
            except ServiceError as error:
                if not self._engine.can_restart:
                    raise
                _log.warning("no hot swap to %s, restarting instead: %s", target.label, error.what)
            else:
                return "hot_swap"
        if not self._engine.can_restart:
            raise ServiceError(
                f"{target.label} cannot be loaded into the running upstream: another architecture or tokenizer, tied "
                "embeddings, or its own model folder is not readable here",
                next_step="restart the upstream with it",
            )
        await self._engine.start(target.path)
        return "restart" if was_serving else "start"

    async def _hot_swap(self, target: Deployment) -> None:
        api, served_name = self._engine.api, self._engine.served_name
        self._before_swap = await api.probe(served_name)
        await api.reload_weights(target.path)
        # No request runs, so equal weights give equal numbers: equal numbers leave in doubt whether anything changed.
        if await api.probe(served_name) == self._before_swap:
            raise ServiceError(f"after reloading, {target.label} answers a fixed prompt exactly as before")

    async def _go_back(self, target: Deployment, previous: Deployment | None, cause: SpanloopError) -> ServiceError:
        """Serve the previous version again, and word what happened."""
        _log.error("deploying %s failed: %s", target.label, cause)
        what = f"Deploying {target.label} failed: {cause.what}"
        if previous is None:
            with contextlib.suppress(ServiceError):
                await self._engine.stop()
            self._fail(cause)
            return ServiceError(f"{what}\nNo model serves.", next_step=cause.next_step)
        self._deployment = previous
        try:
            if self._engine.can_restart:
                await self._engine.start(previous.path)
            else:
                await self._undo_swap(previous)
        except SpanloopError as error:
            self._fail(error)
            return ServiceError(
                f"{what}\nGoing back to {previous.label} failed too: {error.what}", next_step=error.next_step
            )
        self._serve(previous)
        self._error = what
        self._keep(is_up=True)
        return ServiceError(f"{what}\n{previous.label} serves again.", next_step=cause.next_step)

    async def _undo_swap(self, previous: Deployment) -> None:
        """Bring a foreign server, which may or may not have taken new weights, back to the previous ones."""
        before, api, served_name = self._before_swap, self._engine.api, self._engine.served_name
        if before is None or await api.probe(served_name) == before:
            return
        await api.reload_weights(previous.path)
        if await api.probe(served_name) != before:
            raise ServiceError(f"the upstream {api.base_url} does not answer like {previous.label} any more")

    def _keep(self, *, is_up: bool) -> None:
        self._keeper = asyncio.create_task(self._keep_up(is_up=is_up), name="engine-keeper")
        self._keeper.add_done_callback(self._keeper_ended)

    def _keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        """A bug in the keeper must be seen, and must not leave callers waiting at the gate."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            _log.error("the engine's keeper broke", exc_info=error)
            self._fail(ServiceError(f"the engine's keeper broke: {error!r}"))

    async def _end_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeper

    async def _keep_up(self, *, is_up: bool) -> None:
        """Start the current deployment, and again whenever it goes away, until it proves hopeless."""
        failures = 0
        while True:
            if is_up:
                up_since_s = time.monotonic()
                reason = await self._engine.wait_gone()
                self._restarts += 1
                failures = 1 if time.monotonic() - up_since_s > _STABLE_AFTER_S else failures + 1
                self._await_restart(reason, failures)
            if failures:
                await asyncio.sleep(self._backoff_s(failures))
            try:
                await self._start_current()
            except ServiceError as error:
                is_up, failures = False, failures + 1
                if self._engine.can_restart and failures >= self._settings.restart_limit:
                    self._fail(error)
                    return
                self._await_restart(error.what, failures)
            except SpanloopError as error:
                self._fail(error)
                return
            else:
                is_up = True

    async def _start_current(self) -> None:
        began_s = time.monotonic()
        if self._deployment is not None and self._engine.can_restart:
            self._folder = await asyncio.to_thread(ModelFolder.read, Path(self._deployment.path))
            await self._engine.start(self._deployment.path)
        else:
            await self._engine.start("")
            self._deployment, self._folder = await self._discover()
        self._start_duration_s = time.monotonic() - began_s
        self._serve(self._deployment)

    async def _discover(self) -> tuple[Deployment, ModelFolder | None]:
        """What a foreign server serves."""
        name, _, version = self._engine.served_name.partition("@")
        root = await self._engine.api.served_root()
        try:
            folder = await asyncio.to_thread(ModelFolder.read, Path(root))
        except ConfigurationError:
            # Its folder is not on this machine: chat works, only hot swaps are refused.
            return Deployment(name, version or EXTERNAL_VERSION, ""), None
        return Deployment(name, version or EXTERNAL_VERSION, root), folder

    def _serve(self, deployment: Deployment) -> None:
        self._state, self._error = EngineState.SERVING, ""
        self._gate.open(Route(deployment, self._engine.api.base_url, self._engine.served_name))

    def _await_restart(self, reason: str, failures: int) -> None:
        wait_s = self._backoff_s(failures)
        _log.error("%s; starting it again in %.0f s", reason, wait_s)
        self._state, self._error = EngineState.RESTARTING, reason
        self._gate.shut(
            UnavailableError(
                f"The model is away: {reason}. It is started again by itself; try again in a minute.",
                code="engine_restarting",
                retry_after_s=max(5, round(wait_s)),
            )
        )

    def _fail(self, error: SpanloopError) -> None:
        _log.error("the engine stays down: %s", error)
        self._state, self._error = EngineState.FAILED, str(error)
        self._gate.shut(
            UnavailableError(f"The engine does not run: {error.what}; {_DEPLOY_NEXT}", code="engine_failed")
        )

    def _backoff_s(self, failures: int) -> float:
        return min(_LONGEST_BACKOFF_S, self._settings.first_backoff_s * 2.0 ** (failures - 1))
