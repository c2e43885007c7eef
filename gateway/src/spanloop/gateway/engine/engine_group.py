"""The engines of one gateway: they are started, paused and stopped together, and deployed one after another.

Invariant: while one engine gets new weights, the others serve. A deployment that fails on one engine is taken back on
those that had it already.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from spanloop.foundation.errors import ConfigurationError, SpanloopError

from ..api_errors import UnavailableError
from .deployment import Deployment, LastDeployment
from .lifecycle import EngineLifecycle
from .status import DeployResult, EngineState, EngineStatus

_log: Final = logging.getLogger(__name__)


class SharedDeployment:
    """The last deployment, as all engines but the last of a group see it: that one writes it.

    Args:
        file: The last deployment.
    """

    def __init__(self, file: LastDeployment) -> None:
        self._file = file

    def read(self) -> Deployment | None:
        """Return the last deployment; it raises as the file."""
        return self._file.read()

    def write(self, deployment: Deployment) -> None:
        """Leave the writing to the last engine, which gets the deployment after the others."""


class EngineGroup:
    """Controls engines as one.

    Args:
        lifecycles: Of the engines, at least one.
    """

    def __init__(self, lifecycles: Sequence[EngineLifecycle]) -> None:
        self._lifecycles = tuple(lifecycles)
        self._lock = asyncio.Lock()

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        """The state of each engine."""
        return tuple(lifecycle.status for lifecycle in self._lifecycles)

    @property
    def status(self) -> EngineStatus:
        """The state of an engine that serves, else of the first; with any error, and the restarts of all."""
        statuses = self.statuses
        shown = next((each for each in statuses if each.state is EngineState.SERVING), statuses[0])
        error = shown.error or next((each.error for each in statuses if each.error), "")
        return shown._replace(error=error, restarts=sum(each.restarts for each in statuses))

    @property
    def can_restart(self) -> bool:
        """Whether the engines are children of the gateway."""
        return all(lifecycle.can_restart for lifecycle in self._lifecycles)

    def start(self) -> None:
        """Start all engines, as `EngineLifecycle.start`."""
        for lifecycle in self._lifecycles:
            lifecycle.start()

    async def deploy(self, target: Deployment) -> DeployResult:
        """Make the engines serve ``target``, one after another; all at once while none serves.

        Raises:
            ConfigurationError: As `EngineLifecycle.deploy`, or the engines serve several models and none of this name.
            DataDirectoryError: As `EngineLifecycle.deploy`.
            ServiceError: As `EngineLifecycle.deploy`; no engine serves the target.
        """
        async with self._lock:
            members = self._members_of(target)
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
        await asyncio.gather(*(lifecycle.stop() for lifecycle in self._lifecycles))

    async def suspend(self, reason: UnavailableError) -> None:
        """Free the memory of all engines; it raises as `EngineLifecycle.suspend`."""
        await asyncio.gather(*(lifecycle.suspend(reason) for lifecycle in self._lifecycles))

    async def resume(self) -> None:
        """Start the engines that `suspend` stopped."""
        for lifecycle in self._lifecycles:
            await lifecycle.resume()

    async def close(self) -> None:
        """Stop all engines at once, because the gateway ends."""
        await asyncio.gather(*(lifecycle.close() for lifecycle in self._lifecycles))

    def _members_of(self, target: Deployment) -> Sequence[EngineLifecycle]:
        """Return the engines of the target's model: all of them, unless they serve several."""
        names = {lifecycle: status.deployment.name for lifecycle, status in self._by_status() if status.deployment}
        members = [lifecycle for lifecycle, name in names.items() if name == target.name]
        if len(set(names.values())) < 2:
            return self._lifecycles
        if not members:
            served = ", ".join(sorted(set(names.values())))
            raise ConfigurationError(
                f"No engine of this gateway serves {target.name}; its engines serve {served}.",
                next_step="deploy a version of one of these models",
            )
        return members

    def _by_status(self) -> list[tuple[EngineLifecycle, EngineStatus]]:
        return list(zip(self._lifecycles, self.statuses, strict=True))

    async def _take_back(self, lifecycle: EngineLifecycle, before: Deployment | None, target: Deployment) -> None:
        """Let an engine serve what it did before; a failure is logged, and the engine's state tells it."""
        try:
            if before is None:
                await lifecycle.stop()
            else:
                await lifecycle.deploy(before)
        except SpanloopError as error:
            _log.error("an engine still serves %s, which another one failed to load: %s", target.label, error)


def _joined(results: Sequence[DeployResult]) -> DeployResult:
    """Return the result of the group."""
    changed = [result for result in results if result.method != "unchanged"] or results[:1]
    duration_s = sum(result.duration_s for result in changed)
    return DeployResult(changed[0].deployment, changed[0].method, duration_s, sum(each.preempted for each in changed))
