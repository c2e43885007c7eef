"""The engines of one gateway: they are started, paused and stopped together, and deployed one after another.

Invariant: while one engine gets new weights, the others serve. A deployment that fails on one engine is taken back on
those that had it already. Weights of which an adapter is served are not replaced.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from spanloop.foundation.errors import ConfigurationError, ServiceError, SpanloopError

from ..api_errors import UnavailableError
from ..engine.deployment import Deployment
from ..engine.lifecycle import NO_MODEL, EngineLifecycle
from ..engine.status import DeployResult, EngineState, EngineStatus
from .further_models import FurtherModels

_log: Final = logging.getLogger(__name__)


class EngineGroup:
    """Controls engines as one.

    Args:
        lifecycles: Of the first model's engines, or of the upstreams; at least one.
        further: The models beside the first one.
    """

    def __init__(self, lifecycles: Sequence[EngineLifecycle], further: FurtherModels) -> None:
        self._first = tuple(lifecycles)
        self._further = further
        self._lock = asyncio.Lock()

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        """The state of each engine, in the order of their gates."""
        return tuple(lifecycle.status for lifecycle in (*self._first, *self._further.lifecycles))

    @property
    def status(self) -> EngineStatus:
        """The state of the first model's engine that serves, else of its first; with any error and all restarts."""
        return _joined_status([lifecycle.status for lifecycle in self._first])

    def status_of(self, name: str) -> EngineStatus:
        """Return the state of the model of a name, or of the first model, as `status`."""
        model = self._further.find(name)
        return self.status if model is None else _joined_status([each.status for each in model.lifecycles])

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The deployments of all engines, each once; that of the first model is the first."""
        return tuple(dict.fromkeys(each.deployment for each in self.statuses if each.deployment is not None))

    def is_beside(self, name: str) -> bool:
        """Return whether a model is served beside the first one."""
        return self._further.find(name) is not None

    @property
    def can_restart(self) -> bool:
        """Whether the engines are children of the gateway."""
        return all(lifecycle.can_restart for lifecycle in self._first)

    def start(self) -> None:
        """Start all engines, as `EngineLifecycle.start`, with the models of an earlier process."""
        for lifecycle in self._first:
            lifecycle.start()
        self._further.restore()

    async def deploy(self, target: Deployment, *, is_beside: bool = False) -> DeployResult:
        """Make the engines of the target's model serve it, one after another; all at once while none serves.

        Args:
            target: The deployment.
            is_beside: Whether a model that is not served yet leaves the first one as it is.

        Raises:
            ConfigurationError: As `EngineLifecycle.deploy`; there is no room for a further model; or the engines serve
                adapters of their weights, or several models and none of this name.
            DataDirectoryError: As `EngineLifecycle.deploy`.
            ServiceError: As `EngineLifecycle.deploy`; no engine serves the target.
        """
        async with self._lock:
            if is_beside and self._is_new(target):
                return await self._add(target)
            return await self._deploy(self._members_of(target), target)

    async def _add(self, target: Deployment) -> DeployResult:
        """Serve a further model; after an error it has left no engine."""
        model = self._further.add(target)
        try:
            return await self._deploy(model.lifecycles, target)
        except BaseException as error:
            await self._further.remove(target.name)
            if isinstance(error, ServiceError):
                what = error.what.removesuffix(NO_MODEL) + "\nThe other models are served as before."
                raise ServiceError(what, next_step=error.next_step) from error
            raise

    async def _deploy(self, members: Sequence[EngineLifecycle], target: Deployment) -> DeployResult:
        before = [lifecycle.status for lifecycle in members]
        is_serving = any(status.state is EngineState.SERVING for status in before)
        results: list[DeployResult | BaseException] = []
        for batch in [[each] for each in members] if is_serving else [members]:
            deployments = [lifecycle.deploy(target) for lifecycle in batch]
            results += await asyncio.gather(*deployments, return_exceptions=True)
            if isinstance(results[-1], BaseException):
                break
        failure = next((result for result in results if isinstance(result, BaseException)), None)
        if failure is not None:
            for lifecycle, status, result in zip(members, before, results, strict=False):
                if isinstance(result, DeployResult) and result.method != "unchanged":
                    await self._take_back(lifecycle, status.deployment, target)
            raise failure
        return _joined([result for result in results if isinstance(result, DeployResult)])

    async def stop(self) -> None:
        """Stop all engines after running requests."""
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self._further.lifecycles))
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self._first))

    async def stop_model(self, name: str) -> None:
        """Stop a model beside the first one after running requests; a gateway that starts again does not serve it.

        Raises:
            ConfigurationError: No such model is served beside the first one, or adapters of it are served.
            DataDirectoryError: It is stopped, and a gateway that starts again serves it again.
        """
        async with self._lock:
            model = self._further.find(name)
            if model is None:
                raise ConfigurationError(
                    f"No model {name!r} is served beside the first one.",
                    next_step="see GET /v1/models",
                )
            if not model.is_adapter:
                self._check_adapters(model.lifecycles, "")
            await self._further.remove(name)

    async def suspend(self, reason: UnavailableError) -> None:
        """Free the memory of all engines; it raises as `EngineLifecycle.suspend`."""
        # Adapters first: their requests run in engines that sleep next.
        await asyncio.gather(*(lifecycle.suspend(reason) for lifecycle in self._further.lifecycles))
        await asyncio.gather(*(lifecycle.suspend(reason) for lifecycle in self._first))

    async def resume(self) -> None:
        """Start the engines that `suspend` stopped."""
        for lifecycle in (*self._first, *self._further.lifecycles):
            await lifecycle.resume()

    async def close(self) -> None:
        """Stop all engines at once, because the gateway ends."""
        await asyncio.gather(*(lifecycle.close() for lifecycle in self._further.lifecycles))
        await asyncio.gather(*(lifecycle.close() for lifecycle in self._first))

    def _is_new(self, target: Deployment) -> bool:
        """Return whether a first model is served, and none of the target's name."""
        names = self._first_names()
        return self._further.find(target.name) is None and bool(names) and target.name not in names.values()

    def _members_of(self, target: Deployment) -> Sequence[EngineLifecycle]:
        """Return the engines of the target's model, else those of the first model, unless upstreams serve several."""
        model = self._further.find(target.name)
        if model is not None:
            self._check_base(model.lifecycles if model.is_adapter else (), target)
            if not model.is_adapter:
                self._check_adapters(model.lifecycles, target.path)
            return model.lifecycles
        names = self._first_names()
        members = [lifecycle for lifecycle, name in names.items() if name == target.name]
        if len(set(names.values())) < 2:
            self._check_adapters(self._first, target.path)
            return self._first
        if not members:
            served = ", ".join(sorted(set(names.values())))
            raise ConfigurationError(
                f"No engine of this gateway serves {target.name}; its engines serve {served}.",
                next_step="deploy a version of one of these models",
            )
        return members

    def _first_names(self) -> dict[EngineLifecycle, str]:
        deployments = {lifecycle: lifecycle.status.deployment for lifecycle in self._first}
        return {lifecycle: each.name for lifecycle, each in deployments.items() if each is not None}

    def _check_base(self, lifecycles: Sequence[EngineLifecycle], target: Deployment) -> None:
        """Refuse a version of an adapter that is an adapter of other weights than its engines have."""
        served = next((each.status.deployment for each in lifecycles if each.status.deployment), None)
        if served is not None and (served.path != target.path or not target.adapter):
            raise ConfigurationError(
                f"{target.label} is no adapter of the weights of which {served.label} is one.",
                next_step=f"spanloop models stop {target.name}; then deploy it again with --beside",
            )

    def _check_adapters(self, lifecycles: Sequence[EngineLifecycle], path: str) -> None:
        """Refuse to replace weights, by those in the folder ``path``, of which adapters are served."""
        deployments = [lifecycle.status.deployment for lifecycle in lifecycles]
        replaced = {each.path for each in deployments if each is not None and each.path != path}
        adapters = sorted(label for each in replaced for label in self._further.adapters_of(each))
        if adapters:
            raise ConfigurationError(
                f"The weights cannot be replaced while adapters of them are served: {', '.join(adapters)}.",
                next_step="spanloop models stop NAME for each of them first",
            )

    async def _take_back(self, lifecycle: EngineLifecycle, before: Deployment | None, target: Deployment) -> None:
        """Let an engine serve what it did before; a failure is logged, and the engine's state tells it."""
        try:
            if before is None:
                await lifecycle.stop()
            else:
                await lifecycle.deploy(before)
        except SpanloopError as error:
            _log.error("an engine still serves %s, which another one failed to load: %s", target.label, error)


def _joined_status(statuses: Sequence[EngineStatus]) -> EngineStatus:
    shown = next((each for each in statuses if each.state is EngineState.SERVING), statuses[0])
    error = shown.error or next((each.error for each in statuses if each.error), "")
    return shown._replace(error=error, restarts=sum(each.restarts for each in statuses))


def _joined(results: Sequence[DeployResult]) -> DeployResult:
    """Return the result of the group."""
    changed = [result for result in results if result.method != "unchanged"] or results[:1]
    duration_s = sum(result.duration_s for result in changed)
    return DeployResult(changed[0].deployment, changed[0].method, duration_s, sum(each.preempted for each in changed))
