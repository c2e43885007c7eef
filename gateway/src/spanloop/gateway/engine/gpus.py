"""Which GPUs each engine uses.

Invariant: no two engines of a gateway share a GPU.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError

VISIBLE_ENV: Final = "CUDA_VISIBLE_DEVICES"
_DEVICES: Final = Path("/dev")


def visible_gpus(environment: Mapping[str, str] = os.environ, devices: Path = _DEVICES) -> tuple[str, ...]:
    """Return the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    visible = environment.get(VISIBLE_ENV)
    if visible is not None:
        return tuple(filter(None, (name.strip() for name in visible.split(","))))
    return tuple(map(str, range(len(list(devices.glob("nvidia[0-9]*"))))))


def assign_gpus(engines: int, tensor_parallel: int, gpus: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the GPUs of each engine.

    Args:
        engines: Number of engines.
        tensor_parallel: GPUs of each.
        gpus: Those that may be used.

    Raises:
        ConfigurationError: There are fewer than the engines need.
    """
    if engines * tensor_parallel > len(gpus):
        raise ConfigurationError(
            f"engines = {engines} with tensor_parallel = {tensor_parallel} need {engines * tensor_parallel} GPUs; "
            f"{len(gpus)} are visible.",
            next_step=f"lower engines or tensor_parallel in [serve.gateway], or make more GPUs visible ({VISIBLE_ENV})",
        )
    return [tuple(gpus[at * tensor_parallel : (at + 1) * tensor_parallel]) for at in range(engines)]
