"""Models that are served beside the first one: each on an engine of its own, or as an adapter on its base's engines.

Invariant: a model of this kind answers only requests that name it. It is on disk once it is served, so a gateway that
starts again serves it again.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError

from ..api_errors import UnavailableError
from ..engine.admission import AdmissionControl
from ..engine.deployment import Deployment, SharedDeployment
from ..engine.gate import EngineGate
from ..engine.lifecycle import EngineLifecycle
from .engine_factory import EngineFactory
from .further_deployments import FurtherDeployments

_STARTING: Final = UnavailableError("The model is starting.", code="model_starting", retry_after_s=5)
_STOPPED: Final = UnavailableError("The model was stopped by an administrator.", code="model_stopped")
_log: Final = logging.getLogger(__name__)


class FurtherModel(NamedTuple):
    """One model."""

    lifecycles: tuple[EngineLifecycle, ...]
    """One, or one for each engine that serves its base."""
    gates: tuple[EngineGate, ...]
    is_adapter: bool
    """Whether it is an adapter on engines of its base, so that these must keep their weights."""


class FurtherModels:
    """The models beside the first one.

    Args:
        admission: Gets a gate for each of their engines.
        factory: Makes their engines.
        file: Their last deployments.
    """

    def __init__(self, admission: AdmissionControl, factory: EngineFactory, file: FurtherDeployments) -> None:
        self._admission = admission
        self._factory = factory
        self._file = file
        self._models: dict[str, FurtherModel] = {}

    @property
    def lifecycles(self) -> tuple[EngineLifecycle, ...]:
        """The lifecycles of all models."""
        return tuple(lifecycle for model in self._models.values() for lifecycle in model.lifecycles)

    def find(self, name: str) -> FurtherModel | None:
        """Return the model of a name."""
        return self._models.get(name)

    def adapters_of(self, path: str) -> Iterator[str]:
        """Yield the versions that are adapters on engines with the weights of a folder."""
        for model in self._models.values():
            deployments = [lifecycle.status.deployment for lifecycle in model.lifecycles]
            if model.is_adapter:
                yield from {each.label for each in deployments if each is not None and each.path == path}

    def add(self, target: Deployment) -> FurtherModel:
        """Make room for a model; its engines do not serve it yet.

        Raises:
            ConfigurationError: There is no room, or the gateway uses upstreams.
        """
        adapters = sum(model.is_adapter for model in self._models.values())
        places = self._factory.adapter_engines(target, adapters)
        engines = places or [self._factory.further_engine(target)]
        gates = tuple(self._admission.add_gate(target.name, _STARTING) for _ in engines)
        file = self._file.of(target.name)
        files = [*(SharedDeployment(file) for _ in engines[1:]), file]
        lifecycles = tuple(map(self._factory.lifecycle, engines, gates, files))
        model = self._models[target.name] = FurtherModel(lifecycles, gates, is_adapter=bool(places))
        return model

    async def remove(self, name: str) -> None:
        """Stop a model after its running requests, and forget it; DataDirectoryError: it stays on disk."""
        model = self._models[name]
        for gate in model.gates:
            gate.close(_STOPPED)
        await asyncio.gather(*(lifecycle.stop() for lifecycle in model.lifecycles))
        del self._models[name]
        for gate in model.gates:
            self._admission.remove_gate(gate)
        self._factory.forget(model.lifecycles)
        await asyncio.to_thread(self._file.remove, name)

    def restore(self) -> None:
        """Start the models of an earlier process in the background; one without room is logged."""
        try:
            deployments = self._file.read()
        except ConfigurationError as error:
            _log.error("no further model is served: %s", error)
            return
        for deployment in deployments:
            try:
                model = self.add(deployment)
            except ConfigurationError as error:
                _log.error("%s is not served again: %s", deployment.label, error)
                continue
            for lifecycle in model.lifecycles:
                lifecycle.start()
