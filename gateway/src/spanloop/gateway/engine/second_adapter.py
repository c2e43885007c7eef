"""A LoRA adapter in an engine that serves its base, or another adapter of it: a canary's candidate, a further model.

Invariant: the engine stays its host's: this one loads and unloads the adapter, and starts or stops no process.
"""

import asyncio
import contextlib
import time
from typing import Final

from spanloop.foundation.errors import ServiceError

from .deployment import Deployment
from .facts import EngineFacts
from .served_adapter import ServedAdapter
from .vllm_api import VllmApi
from .vllm_server import ChildEngine

_POLL_S: Final = 0.2


def fits_beside(champion: Deployment | None, candidate: Deployment) -> bool:
    """Return whether one engine serves both: adapters of one base, the candidate's of no higher rank.

    Raises:
        ConfigurationError: The folder of an adapter is none.
    """
    if champion is None or champion.path != candidate.path:
        return False
    first, second = ServedAdapter.of(champion), ServedAdapter.of(candidate)
    return first is not None and second is not None and second.max_rank <= first.max_rank


class SecondAdapter:
    """The adapter's engine.

    Args:
        host: The engine that serves the base.
        start_timeout_s: Maximum wait for the host.
    """

    can_restart = True

    def __init__(self, host: ChildEngine, start_timeout_s: float) -> None:
        self._host = host
        self._start_timeout_s = start_timeout_s
        self._name = ""

    @property
    def api(self) -> VllmApi:
        """The host's API."""
        return self._host.api

    @property
    def served_name(self) -> str:
        """The adapter's name."""
        return self._name

    @property
    def facts(self) -> EngineFacts:
        """The host's facts."""
        return self._host.facts

    @property
    def lora_rank(self) -> int:
        """The host's."""
        return self._host.lora_rank

    @property
    def pid(self) -> int | None:
        """The host's process id."""
        return self._host.pid

    async def start(self, model_path: str, adapter: ServedAdapter | None = None) -> None:
        """Load the adapter as soon as the host serves one of the same base.

        Raises:
            ServiceError: The host cannot load it, or does not serve an adapter of this base in time.
        """
        deadline_s = time.monotonic() + self._start_timeout_s
        while self._host.serves_adapters_of != model_path:
            if time.monotonic() > deadline_s:
                raise ServiceError(f"The engine that the adapter is for serves no adapters of {model_path}.")
            await asyncio.sleep(_POLL_S)
        if adapter is None:
            raise ServiceError(f"{model_path} is no adapter, and its engine serves adapters.")
        await self.stop()
        await self.api.load_adapter(adapter)
        self._name = adapter.name
        await self.api.warm_up(adapter.name)

    async def swap_adapter(self, model_path: str, adapter: ServedAdapter) -> bool:
        """Load ``adapter`` and unload the one before it, if the host serves this base; return False if it does not."""
        previous = self._name
        if not previous or self._host.serves_adapters_of != model_path:
            return False
        await self.api.load_adapter(adapter)
        self._name = adapter.name
        await self.api.unload_adapter(previous)
        await self.api.warm_up(adapter.name)
        return True

    async def stop(self) -> None:
        """Unload the adapter, if the host still has it."""
        name, self._name = self._name, ""
        if name:
            with contextlib.suppress(ServiceError):
                await self.api.unload_adapter(name)

    async def release_memory(self) -> None:
        """Do nothing: the host releases it."""

    async def wait_until_down(self) -> str:
        """Wait until the host ends on its own."""
        reason = await self._host.wait_until_down()
        self._name = ""
        return reason
