"""Makes the engines of a gateway: those of the first model, of further models, and of a canary's candidate.

Invariant: a further engine is made only where the machine has room for it. No two engines share a GPU, but for those
of a canary whose settings give each at most half of its memory.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings

from ..client.engine_client import EngineClient
from ..engine.deployment import Deployment, DeploymentFile, LastDeployment, SharedDeployment
from ..engine.gate import EngineGate
from ..engine.gpus import assign_gpus, visible_gpus
from ..engine.lifecycle import EngineLifecycle
from ..engine.second_adapter import SecondAdapter, fits_beside
from ..engine.served_adapter import ServedAdapter
from ..engine.serving_environment import find_serving_environment
from ..engine.upstream_weights import UpstreamWeights
from ..engine.vllm_server import ChildEngine, Engine, ExternalEngine
from .engine_room import check_memory, free_gpus, leaves_half_a_gpu


class _Child(NamedTuple):
    """An engine with weights of its own."""

    engine: ChildEngine
    gpus: tuple[str, ...]
    """GPUs that it uses; empty on a CPU."""


class EngineFactory:
    """Makes engines and their lifecycles.

    Args:
        settings: The gateway's.
        client: For the engines' APIs.
        data_dir: The gateway's.
    """

    def __init__(self, settings: GatewaySettings, client: EngineClient, data_dir: DataDir) -> None:
        self._settings = settings
        self.client = client
        self._data_dir = data_dir
        self._children: list[_Child] = []
        self._lifecycles: list[tuple[EngineLifecycle, Engine]] = []
        self.count: Final = len(settings.upstreams) or settings.engines
        """Number of engines of the first model."""

    def first_lifecycles(self, gates: Sequence[EngineGate]) -> list[EngineLifecycle]:
        """Return the lifecycles of the first model's engines, or of the upstreams; one for each gate.

        Raises:
            ConfigurationError: The engines need more GPUs than there are.
        """
        file = DeploymentFile(self._data_dir)
        files: list[LastDeployment] = [*(SharedDeployment(file) for _ in gates[1:]), file]
        engines = [self._first_engine(at) for at in range(len(gates))]
        return [self.lifecycle(*parts, at=at) for at, parts in enumerate(zip(engines, gates, files, strict=True))]

    def lifecycle(self, engine: Engine, gate: EngineGate, file: LastDeployment, *, at: int = 0) -> EngineLifecycle:
        """Return the lifecycle of an engine.

        Args:
            engine: The engine.
            gate: Its entrance.
            file: Its last deployment.
            at: Which of the upstreams it is.
        """
        upstream = self._settings.upstreams[at] if self._settings.upstream else ""
        lifecycle = EngineLifecycle(
            engine,
            gate,
            file,
            self._settings.model_copy(update={"upstream": upstream}),
            data_dir=self._data_dir,
            upstream_weights=UpstreamWeights(self._data_dir, at),
        )
        self._lifecycles.append((lifecycle, engine))
        return lifecycle

    def adapter_engines(self, target: Deployment, served: int) -> list[Engine]:
        """Return a place on each engine that serves the base of an adapter; none where no engine takes it.

        Args:
            target: The adapter's version, or one of full weights.
            served: Adapters that are served beside models already.

        Raises:
            ConfigurationError: They are full, or take adapters of lower ranks only.
        """
        adapter, limit = ServedAdapter.of(target), self._settings.max_adapters
        hosts = [engine for engine, served_path in self._served_paths() if served_path == target.path]
        if adapter is None or not limit or not hosts:
            return []
        if served >= limit:
            raise ConfigurationError(
                f"{target.label} is one adapter too many: {served} are served beside models, and max_adapters is "
                f"{limit}.",
                next_step="stop one (spanloop models stop NAME), or raise max_adapters in [serve.gateway]",
            )
        ranks = {host.lora_rank for host in hosts if host.lora_rank}
        if any(adapter.max_rank > rank for rank in ranks):
            raise ConfigurationError(
                f"{target.label} needs a max_lora_rank of {adapter.max_rank}; the engines run with {min(ranks)}.",
                next_step="raise max_lora_rank in [serve.gateway], and start the gateway again",
            )
        return [SecondAdapter(host, self._settings.start_timeout_s) for host in hosts]

    def further_engine(self, target: Deployment) -> Engine:
        """Return an engine for a model beside the first one.

        Raises:
            ConfigurationError: There is no GPU or no memory for it, or the gateway uses upstreams.
        """
        if self._settings.upstream:
            raise ConfigurationError(
                f"The gateway uses upstreams, which it did not start, so it starts no engine for {target.label}.",
                next_step="start a server for it, and add its URL to upstream in [serve.gateway]",
            )
        return self._separate_child(f"engine-{target.name.replace('/', '-')}.log", target)

    def candidate_engine(
        self, upstream: str, candidate: Deployment, champion: Deployment | None
    ) -> tuple[Engine, bool]:
        """Return the engine of a canary's candidate, and whether it is the champion's too.

        Args:
            upstream: URL of a server that serves it; empty for none.
            candidate: The version.
            champion: The version that it is compared with.

        Raises:
            ConfigurationError: There is no GPU or no memory for it.
        """
        if upstream:
            return ExternalEngine(upstream, self.client), False
        hosts = [engine for engine, served_path in self._served_paths() if served_path == candidate.path]
        if hosts and fits_beside(champion, candidate):
            return SecondAdapter(hosts[0], self._settings.start_timeout_s), True
        log = "engine-candidate.log"
        try:
            return self._separate_child(log, candidate), False
        except ConfigurationError:
            shared = self._gpus_of(champion) if leaves_half_a_gpu(self._settings.extra_args) else ()
            if not shared:
                raise
        return self._child(log, shared, shared), False

    def release(self, engine: Engine) -> None:
        """Give the room of an engine that ended to others."""
        self._children = [child for child in self._children if child.engine is not engine]

    def forget(self, lifecycles: Collection[EngineLifecycle]) -> None:
        """Give the room of further models that ended to others."""
        for lifecycle, engine in self._lifecycles:
            if lifecycle in lifecycles:
                self.release(engine)
        self._lifecycles = [each for each in self._lifecycles if each[0] not in lifecycles]

    def _first_engine(self, at: int) -> Engine:
        settings = self._settings
        if settings.upstream:
            return ExternalEngine(settings.upstreams[at], self.client)
        visible: tuple[str, ...] = ()
        used: tuple[str, ...] = ()
        if settings.engines * settings.tensor_parallel > 1 and not find_serving_environment().is_cpu:
            visible = used = assign_gpus(settings.engines, settings.tensor_parallel, visible_gpus())[at]
        return self._child(f"engine{f'-{at}' if at else ''}.log", visible, used or visible_gpus()[:1])

    def _separate_child(self, log: str, target: Deployment) -> ChildEngine:
        """Return an engine beside the others; ConfigurationError: there is no GPU or no memory for it."""
        gpus: tuple[str, ...] = ()
        if find_serving_environment().is_cpu:
            check_memory(target.label, Path(target.path), self._settings.kv_cache_gib)
        else:
            gpus = free_gpus(target.label, self._settings.tensor_parallel, visible_gpus(), self._used_gpus())
        return self._child(log, gpus, gpus)

    def _child(self, log: str, visible: tuple[str, ...], used: tuple[str, ...]) -> ChildEngine:
        engine = ChildEngine(self._settings, self.client, self._data_dir.logs / log, visible)
        self._children.append(_Child(engine, used))
        return engine

    def _gpus_of(self, deployment: Deployment | None) -> tuple[str, ...]:
        """Return the GPUs of the engine that serves a version."""
        engines = [engine for lifecycle, engine in self._lifecycles if lifecycle.status.deployment == deployment]
        return next((child.gpus for child in self._children if child.engine in engines), ())

    def _used_gpus(self) -> set[str]:
        return {gpu for child in self._children for gpu in child.gpus}

    def _served_paths(self) -> list[tuple[ChildEngine, str]]:
        """Return the folder of each child's weights."""
        served = [(engine, lifecycle.status.deployment) for lifecycle, engine in self._lifecycles]
        return [
            (engine, deployment.path)
            for engine, deployment in served
            if isinstance(engine, ChildEngine) and deployment is not None
        ]
