"""Facts about a running engine that its requests depend on."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from spanloop.foundation.errors import ConfigurationError, ServiceError

from ..continuation.vocabulary import Vocabulary
from .prompt_ids import BY_CHAT, BY_COMPLETIONS, PromptIdsRoute
from .sampling import EngineSampling
from .vllm_api import VllmApi

_log: Final = logging.getLogger(__name__)


class EngineFacts(NamedTuple):
    """Read once after the engine's start, since they do not change while it runs."""

    max_model_len: int | None = None
    """Longest prompt plus response, tokens; None for a server that does not say it."""
    sampling: EngineSampling = EngineSampling()
    vocabulary: Vocabulary | None = None
    """Of an engine that takes token ids; None where conversations cannot be continued exactly."""
    no_exact_ids: str = "the engine was not asked"
    """Why they cannot; empty where they can."""
    refused_fields: frozenset[str] = frozenset()
    """Fields that the gateway adds to requests elsewhere (``logprobs``, ``return_token_ids``), and not for this one."""
    prompt_ids: PromptIdsRoute = BY_CHAT
    """How the engine takes the ids of a prompt."""

    @classmethod
    async def of_child(cls, api: VllmApi, command: Sequence[str], model_path: str, name: str) -> Self:
        """Read the facts of a vLLM that was started with ``command``.

        Args:
            api: Of the server.
            command: Its command line.
            model_path: The folder that it serves.
            name: Its name of the model.

        Raises:
            ServiceError: As `VllmApi.max_model_len`.
        """
        sampling = _log_settings(EngineSampling.of_command(command))
        exact = await _exact_ids(api, name, model_path)
        return cls(await api.max_model_len(), sampling, exact.vocabulary, exact.reason, prompt_ids=exact.route)

    @classmethod
    async def of_upstream(cls, api: VllmApi, name: str) -> Self:
        """Read the facts of a server that the gateway did not start; it raises as `VllmApi.max_model_len`."""
        root = await api.served_root()
        # Servers of other makers name no folder; some refuse fields that they do not know.
        refused_fields = frozenset[str]() if root else await api.refused_fields(name)
        if refused_fields:
            _log.warning(
                "the upstream %s does not accept %s, so captures of its answers are incomplete and train no policy",
                api.base_url,
                " and ".join(sorted(refused_fields)),
            )
        max_model_len = await api.max_model_len()
        exact = await _exact_ids(api, name, root)
        try:
            sampling = _log_settings(EngineSampling.of_server_info(await api.server_info()))
        except ServiceError as error:
            sampling = EngineSampling()
            _log.warning(
                "the upstream %s does not tell its sampling defaults, so captures leave them out: %s; start it with "
                "VLLM_SERVER_DEV_MODE=1, or with --generation-config vllm and --logprobs-mode processed_logprobs",
                api.base_url,
                error.what,
            )
        return cls(max_model_len, sampling, exact.vocabulary, exact.reason, refused_fields, exact.route)


class _ExactIds(NamedTuple):
    vocabulary: Vocabulary | None
    reason: str
    """Why there is none."""
    route: PromptIdsRoute = BY_CHAT


async def _exact_ids(api: VllmApi, name: str, folder: str) -> _ExactIds:
    """Return the vocabulary of an engine that takes token ids, and how it takes them; else the reason."""
    exact = await _find_exact_ids(api, name, folder)
    if reason := exact.reason or exact.route.limits:
        _log.warning(
            "turns of a conversation are tokenised again, so some become training rows of their own: %s", reason
        )
    return exact


async def _find_exact_ids(api: VllmApi, name: str, folder: str) -> _ExactIds:
    route = await api.prompt_ids_route(name)
    if route is None:
        return _ExactIds(None, "the engine takes no token ids of a prompt (vLLM 0.32 and newer do)")
    try:
        vocabulary = await asyncio.to_thread(Vocabulary.read, Path(folder))
    except ConfigurationError as error:
        return _ExactIds(None, error.what)
    if route is BY_COMPLETIONS and vocabulary.marks_thinking:
        return _ExactIds(None, "the engine takes token ids by /v1/completions only, which parses no thinking")
    return _ExactIds(vocabulary, "", route)


def _log_settings(sampling: EngineSampling) -> EngineSampling:
    if sampling.settings:
        settings = ", ".join(f"{name} {value}" for name, value in sampling.settings.items())
        _log.warning("the engine changes what requests sample, which their captures record: %s", settings)
    return sampling
