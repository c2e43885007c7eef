"""A LoRA adapter that vLLM serves beside the weights of its base."""

import json
from pathlib import Path
from typing import Final, NamedTuple, Self

from spanloop.foundation.errors import ConfigurationError

from .deployment import Deployment

_MAX_RANKS: Final = (8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's ``--max-lora-rank`` from 8 on (``vllm.config.lora.MaxLoRARanks``)."""


def largest_rank(rank: int) -> int | None:
    """Return the smallest ``--max-lora-rank`` that a rank fits in; None where vLLM has none."""
    return next((each for each in _MAX_RANKS if rank <= each), None)


class ServedAdapter(NamedTuple):
    """An adapter as the engine loads it."""

    name: str
    """``name@version``: the engine's name for it, and its key of cached prefixes, so one name never has two weights."""
    path: str
    """Absolute path of a folder in PEFT's format."""
    max_rank: int
    """The engine's ``--max-lora-rank``: the smallest that the adapter's rank fits in."""

    @classmethod
    def of(cls, deployment: Deployment) -> Self | None:
        """Read the adapter of a deployment; None for one of full weights.

        Raises:
            ConfigurationError: The folder is no adapter, or its rank is larger than vLLM serves.
        """
        if not deployment.adapter:
            return None
        path = Path(deployment.adapter) / "adapter_config.json"
        try:
            rank = int(json.loads(path.read_bytes())["r"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(
                f"{deployment.label} is no LoRA adapter: cannot read the rank in {path}: {error!r}.",
                next_step="deploy another version: spanloop models list",
            ) from error
        max_rank = largest_rank(rank)
        if max_rank is None:
            raise ConfigurationError(
                f"{deployment.label} is a LoRA adapter of rank {rank}; vLLM serves up to {_MAX_RANKS[-1]}.",
                next_step="train it with lora_merge = true, or with a lower lora_rank",
            )
        return cls(deployment.label, deployment.adapter, max_rank)
