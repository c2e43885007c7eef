"""The engine's lifecycle: deploy, hot swap, restart after a failure, pause and stop.

Invariant: requests are admitted only while the engine serves the weights of ``status.deployment``. One transition runs
at a time; a deployment that fails leaves the previous one serving.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError, ServiceError, SpanloopError
from spanloop.foundation.logprob_agreement import agreement
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.foundation.trained_logprobs import TOLERANCE, TrainedLogprobs

from ..api_errors import UnavailableError
from ..local_copies import LocalCopies
from .deployment import Deployment, LastDeployment, ModelFolder, read_folder
from .gate import EngineEndpoint, EngineGate
from .served_adapter import ServedAdapter
from .status import DeployResult, EngineState, EngineStatus
from .upstream_weights import UpstreamWeights
from .vllm_server import Engine

_log: Final = logging.getLogger(__name__)
_MAX_BACKOFF_S: Final = 60.0
_STABLE_AFTER_S: Final = 60.0
_DEPLOY_NEXT: Final = "next: spanloop models deploy NAME"

NO_DEPLOYMENT: Final = UnavailableError(f"No model deployed; {_DEPLOY_NEXT}", code="no_deployment")

NO_MODEL: Final = "\nNo model is served."
_RESTORABLE: Final = frozenset({EngineState.SERVING, EngineState.RESTARTING, EngineState.PAUSED})
"""States in which a failed deployment rolls back to the last one."""


class EngineLifecycle:
    """Controls the engine and admission to it.

    Args:
        engine: A child process or an external server.
        gate: The entrance to the engine; opened, held and closed only by this object.
        file: Holds the last deployment.
        settings: Timeouts and limits.
        data_dir: The gateway's; it remembers which files were checked.
        upstream_weights: What is loaded into an external server.
    """

    def __init__(
        self,
        engine: Engine,
        gate: EngineGate,
        file: LastDeployment,
        settings: GatewaySettings,
        *,
        data_dir: DataDir,
        upstream_weights: UpstreamWeights,
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._file = file
        self._settings = settings
        self._data_dir = data_dir
        self._copies = LocalCopies(data_dir, data_dir.shared)
        self._upstream_weights = upstream_weights
        self._lock = asyncio.Lock()
        self._supervisor: asyncio.Task[None] | None = None
        self._state = EngineState.NO_DEPLOYMENT
        self._deployment: Deployment | None = None
        self._folder: ModelFolder | None = None
        self._logprobs_before_swap: tuple[float, ...] | None = None
        self._error = ""
        self._restarts = 0
        self._start_duration_s = 0.0

    @property
    def status(self) -> EngineStatus:
        """The engine's current state."""
        duration_s, pid, sampling = self._start_duration_s, self._engine.pid, self._engine.facts.sampling.settings
        return EngineStatus(self._state, self._deployment, self._error, self._restarts, duration_s, pid, sampling)

    @property
    def can_restart(self) -> bool:
        """Whether the engine is a child of the gateway."""
        return self._engine.can_restart

    def start(self) -> None:
        """Start the last deployment, or connect to the upstream, in the background; without either, do nothing."""
        try:
            self._deployment = None if self._settings.upstream else self._file.read()
        except ConfigurationError as error:
            self._set_failed(error)
            return
        if self._deployment is None and not self._settings.upstream:
            return
        self._start_in_background()

    async def deploy(self, target: Deployment) -> DeployResult:
        """Make the engine serve ``target``; requests wait meanwhile.

        Raises:
            ConfigurationError: The folder holds no model; nothing was changed.
            DataDirectoryError: Its files are not the registered ones; nothing was changed.
            ServiceError: The deployment failed; the message names the version that serves now.
        """
        folder = await asyncio.to_thread(self._read_folder, target)
        await asyncio.to_thread(ServedAdapter.of, target)
        async with self._lock:
            await asyncio.to_thread(
                self._copies.hold, target
            )  # again: the transition before dropped what it does not use
            began_s = time.monotonic()
            if self._state is EngineState.SERVING and target == self._deployment:
                return DeployResult(target, "unchanged", 0.0, 0)
            previous = self._deployment if self._state in _RESTORABLE else None
            was_serving = self._state is EngineState.SERVING
            if not was_serving and not self._engine.can_restart:
                raise ServiceError(
                    f"{target.label} cannot be loaded into the upstream, which does not serve (engine: {self._state}).",
                    next_step="start the upstream, wait until the gateway's /healthz says serving, then deploy again",
                )
            await self._cancel_supervisor()
            self._state = EngineState.SWAPPING if was_serving else EngineState.STARTING
            self._gate.hold()
            self._logprobs_before_swap = None
            preempted = await self._gate.drain(self._settings.drain_timeout_s)
            try:
                method = await self._load(target, folder, was_serving=was_serving)
                await asyncio.to_thread(self._file.write, target)
            except SpanloopError as error:
                self._copies.keep(previous)
                raise await self._roll_back(target, previous, error) from error
            self._deployment, self._folder = target, folder
            self._copies.keep(target)
            self._start_duration_s = time.monotonic() - began_s
            self._set_serving(target)
            self._start_supervisor(is_up=True)
            _log.info("%s serves after %.1f s (%s)", target.label, self._start_duration_s, method)
            return DeployResult(target, method, self._start_duration_s, preempted)

    async def stop(self) -> None:
        """Stop the engine after running requests; 503 until the next deployment or restart of the gateway."""
        async with self._lock:
            await self._drain(
                UnavailableError(f"The engine was stopped by an administrator; {_DEPLOY_NEXT}", code="engine_stopped")
            )
            await self._engine.stop()
            self._copies.keep(None)
            self._state = EngineState.STOPPED
            _log.info("the engine is stopped")

    async def suspend(self, reason: UnavailableError) -> None:
        """Free the engine's memory after running requests, until `resume`; an engine that does not run stays as it is.

        Raises:
            ConfigurationError: The engine is an external server.
        """
        if not self._engine.can_restart:
            raise ConfigurationError(
                "The gateway uses an upstream that it did not start, so it cannot pause it.",
                next_step="stop the upstream manually while training, or train without pausing",
            )
        async with self._lock:
            if self._state in {EngineState.SERVING, EngineState.STARTING, EngineState.RESTARTING}:
                await self._drain(reason)
                await self._engine.release_memory()
                self._state = EngineState.PAUSED
                _log.info("the engine is paused")

    async def resume(self) -> None:
        """Start the engine that `suspend` stopped, in the background; requests wait meanwhile."""
        async with self._lock:
            if self._state is EngineState.PAUSED:
                _log.info("the engine is starting again after a pause")
                self._start_in_background()

    async def close(self) -> None:
        """Stop the engine at once, because the gateway ends."""
        self._gate.close(UnavailableError("The gateway is shutting down.", code="shutting_down", retry_after_s=5))
        await self._cancel_supervisor()
        await self._engine.stop()
        self._copies.keep(None)

    def _read_folder(self, deployment: Deployment) -> ModelFolder:
        self._copies.hold(deployment)
        return read_folder(deployment, self._data_dir.path)

    def _start_in_background(self) -> None:
        self._state = EngineState.STARTING
        self._gate.hold()
        self._start_supervisor(is_up=False)

    async def _drain(self, reason: UnavailableError) -> None:
        """Refuse new requests for ``reason``, and let running ones finish."""
        await self._cancel_supervisor()
        self._gate.close(reason)
        await self._gate.drain(self._settings.drain_timeout_s)

    async def _load(self, target: Deployment, folder: ModelFolder, *, was_serving: bool) -> str:
        if was_serving:
            try:
                if await self._swap(target, folder):
                    return "hot_swap"
            except ServiceError as error:
                if not self._engine.can_restart:
                    raise
                _log.warning("hot swap to %s failed, restarting the engine: %s", target.label, error.what)
        if not self._engine.can_restart:
            raise ServiceError(
                f"{target.label} cannot be loaded into the running upstream: its architecture or tokenizer differs, "
                "its embeddings are tied, it is a LoRA adapter, or the upstream's model folder is not readable on this "
                "host",
                next_step="restart the upstream with this model",
            )
        await self._start_engine(target)
        return "restart" if was_serving else "start"

    async def _start_engine(self, deployment: Deployment) -> None:
        adapter = await asyncio.to_thread(ServedAdapter.of, deployment)
        await self._engine.start(deployment.path, adapter)

    async def _swap(self, target: Deployment, folder: ModelFolder) -> bool:
        """Replace weights or adapter in the running engine; return False if it needs a new start."""
        adapter = await asyncio.to_thread(ServedAdapter.of, target)
        if adapter is not None:
            is_swapped = await self._engine.swap_adapter(target.path, adapter)
            if is_swapped:
                await self._compare_with_trainer(target)
            return is_swapped
        # vLLM wraps the layers of an engine with adapters, and loads no weights into them.
        if self._engine.lora_rank or self._folder is None or not self._folder.can_swap_to(folder):
            return False
        await self._reload(target)
        return True

    async def _reload(self, target: Deployment) -> None:
        api, served_name = self._engine.api, self._engine.served_name
        before = self._logprobs_before_swap = await api.probe(served_name)
        if self._engine.can_restart:
            await self._load_weights(target, before)
            return
        weights = self._upstream_weights
        last = await asyncio.to_thread(weights.read, api.base_url)
        began = await asyncio.to_thread(weights.begin, api.base_url, target, before)
        try:
            after = await self._load_weights(target, began.before)
        except ServiceError:
            # Safe whatever is loaded now, because only equal logprobs name it.
            if last is not None:
                await asyncio.to_thread(weights.write, last)
            raise
        await asyncio.to_thread(weights.write, replace(began, after=after))

    async def _load_weights(self, target: Deployment, before: tuple[float, ...]) -> tuple[float, ...]:
        """Load other weights in place; return the logprobs of the fixed prompt under them."""
        await self._engine.api.reload_weights(target.path)
        after = await self._engine.api.probe(self._engine.served_name)
        # No request runs, so the same weights give equal logprobs: equal ones suggest that nothing was reloaded.
        if after == before:
            raise ServiceError(f"after reloading, {target.label} gives the same logprobs for a fixed prompt as before")
        await self._compare_with_trainer(target)
        return after

    async def _compare_with_trainer(self, target: Deployment) -> None:
        """Check that the loaded weights give the logprobs that the trainer computed, where it stored them."""
        trained = await asyncio.to_thread(TrainedLogprobs.read, Path(target.path))
        if trained is None:
            return
        loaded = await self._engine.api.probe(self._engine.served_name, trained.token_ids)
        difference = agreement(loaded, trained.logprobs)
        if not difference.mean <= TOLERANCE:
            raise ServiceError(
                f"after reloading, the logprobs of a fixed text differ from those that the trainer of {target.label} "
                f"computed by {difference.mean:.3f} on average, expected at most {TOLERANCE}"
            )
        _log.info("%s gives the trainer's logprobs: they differ by %.4f on average", target.label, difference.mean)

    async def _roll_back(self, target: Deployment, previous: Deployment | None, error: SpanloopError) -> ServiceError:
        """Serve the previous version again; return the error to raise."""
        _log.error("deploying %s failed: %s", target.label, error)
        message = f"Deploying {target.label} failed: {error.what}"
        if previous is None:
            with contextlib.suppress(ServiceError):
                await self._engine.stop()
            self._set_failed(error)
            return ServiceError(message + NO_MODEL, next_step=error.next_step)
        self._deployment = previous
        try:
            if self._engine.can_restart:
                await self._start_engine(previous)
            else:
                await self._reload_previous(previous)
        except SpanloopError as rollback_error:
            self._set_failed(rollback_error)
            return ServiceError(
                f"{message}\nRolling back to {previous.label} failed too: {rollback_error.what}",
                next_step=rollback_error.next_step,
            )
        self._set_serving(previous)
        self._error = message
        self._start_supervisor(is_up=True)
        return ServiceError(f"{message}\n{previous.label} serves again.", next_step=error.next_step)

    async def _reload_previous(self, previous: Deployment) -> None:
        """Reload the previous weights into an external server, unless it still has them."""
        logprobs_before, api, served_name = self._logprobs_before_swap, self._engine.api, self._engine.served_name
        if logprobs_before is None or await api.probe(served_name) == logprobs_before:
            return
        await api.reload_weights(previous.path)
        if await api.probe(served_name) != logprobs_before:
            raise ServiceError(f"the upstream {api.base_url} no longer serves the weights of {previous.label}")

    def _start_supervisor(self, *, is_up: bool) -> None:
        self._supervisor = asyncio.create_task(self._supervise(is_up=is_up), name="engine-keeper")
        self._supervisor.add_done_callback(self._on_supervisor_end)

    def _on_supervisor_end(self, supervisor: asyncio.Task[None]) -> None:
        """Report an unexpected error of the supervisor and close admission, so that no request waits forever."""
        if not supervisor.cancelled() and (error := supervisor.exception()) is not None:
            _log.error("the engine's supervisor failed", exc_info=error)
            self._set_failed(ServiceError(f"the engine's supervisor failed: {error!r}"))

    async def _cancel_supervisor(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await supervisor

    async def _supervise(self, *, is_up: bool) -> None:
        """Start the current deployment, and restart it when it ends, up to the restart limit."""
        failures = 0
        while True:
            if is_up:
                up_since_s = time.monotonic()
                reason = await self._engine.wait_until_down()
                self._restarts += 1
                failures = 1 if time.monotonic() - up_since_s > _STABLE_AFTER_S else failures + 1
                self._set_restarting(reason, failures)
            if failures:
                await asyncio.sleep(self._backoff_s(failures))
            try:
                await self._start_current()
            except ServiceError as error:
                is_up, failures = False, failures + 1
                if self._engine.can_restart and failures >= self._settings.restart_limit:
                    self._set_failed(error)
                    return
                self._set_restarting(error.what, failures)
            except SpanloopError as error:
                self._set_failed(error)
                return
            else:
                is_up = True

    async def _start_current(self) -> None:
        began_s = time.monotonic()
        if self._deployment is not None and self._engine.can_restart:
            self._folder = await asyncio.to_thread(self._read_folder, self._deployment)
            await self._start_engine(self._deployment)
        else:
            await self._engine.start("")
            self._deployment, self._folder = await self._upstream_weights.served_by(self._engine)
        self._start_duration_s = time.monotonic() - began_s
        self._set_serving(self._deployment)

    def _set_serving(self, deployment: Deployment) -> None:
        self._state, self._error = EngineState.SERVING, ""
        name = deployment.label if deployment.adapter else self._engine.served_name
        self._gate.open(EngineEndpoint(deployment, self._engine.api.base_url, name, self._engine.facts))

    def _set_restarting(self, reason: str, failures: int) -> None:
        wait_s, reason = self._backoff_s(failures), reason.removesuffix(".")
        _log.error("%s; restarting it in %.0f s", reason, wait_s)
        self._state, self._error = EngineState.RESTARTING, reason
        self._gate.close(
            UnavailableError(
                f"The model is unavailable: {reason}. It restarts automatically; try again in a minute.",
                code="engine_restarting",
                retry_after_s=max(5, round(wait_s)),
            )
        )

    def _set_failed(self, error: SpanloopError) -> None:
        _log.error("the engine stays stopped: %s", error)
        self._state, self._error = EngineState.FAILED, str(error)
        self._gate.close(
            UnavailableError(
                f"The engine does not run: {error.what.removesuffix('.')}; {_DEPLOY_NEXT}", code="engine_failed"
            )
        )

    def _backoff_s(self, failures: int) -> float:
        return min(_MAX_BACKOFF_S, self._settings.first_backoff_s * 2.0 ** (failures - 1))
