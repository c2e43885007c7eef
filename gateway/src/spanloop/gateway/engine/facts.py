"""Facts about a running engine that its requests depend on."""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from spanloop.foundation.errors import ServiceError

from .sampling import EngineSampling
from .vllm_api import VllmApi

_log: Final = logging.getLogger(__name__)


class EngineFacts(NamedTuple):
    """Read once after the engine's start, since they do not change while it runs."""

    max_model_len: int | None = None
    """Longest prompt plus response, tokens; None for a server that does not say it."""
    sampling: EngineSampling = EngineSampling()

    @classmethod
    async def of_child(cls, api: VllmApi, command: Sequence[str]) -> Self:
        """Read the facts of a vLLM that was started with ``command``; it raises as `VllmApi.max_model_len`."""
        return cls(await api.max_model_len(), _log_settings(EngineSampling.of_command(command)))

    @classmethod
    async def of_upstream(cls, api: VllmApi) -> Self:
        """Read the facts of a server that the gateway did not start; it raises as `VllmApi.max_model_len`."""
        max_model_len = await api.max_model_len()
        try:
            return cls(max_model_len, _log_settings(EngineSampling.of_server_info(await api.server_info())))
        except ServiceError as error:
            _log.warning(
                "the upstream %s does not tell its sampling defaults, so captures leave them out: %s; start it with "
                "VLLM_SERVER_DEV_MODE=1, or with --generation-config vllm and --logprobs-mode processed_logprobs",
                api.base_url,
                error.what,
            )
            return cls(max_model_len)


def _log_settings(sampling: EngineSampling) -> EngineSampling:
    if sampling.settings:
        settings = ", ".join(f"{name} {value}" for name, value in sampling.settings.items())
        _log.warning("the engine changes what requests sample, which their captures record: %s", settings)
    return sampling
