"""Whether this machine has room for another engine: GPUs that no engine uses, or memory for its weights."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ConfigurationError

from ..engine.gpus import VISIBLE_ENV

_HALF: Final = 0.5
_GIB: Final = 1 << 30
_MEMORY: Final = Path("/proc/meminfo")
_NEXT_STEP: Final = (
    "stop a model (spanloop models stop NAME), or serve adapters of one base (max_adapters); for a canary, name a "
    "server of its own (--upstream), or let both engines share a GPU: --vllm-args '--gpu-memory-utilization 0.45'"
)


def free_gpus(label: str, count: int, visible: Sequence[str], used: Collection[str]) -> tuple[str, ...]:
    """Return GPUs for another engine.

    Args:
        label: The version that it is to serve.
        count: GPUs that it needs.
        visible: GPUs that the gateway may use.
        used: Those of its engines.

    Raises:
        ConfigurationError: There are fewer than it needs.
    """
    free = [gpu for gpu in visible if gpu not in used]
    if len(free) < count:
        raise ConfigurationError(
            f"An engine of its own for {label} needs {count} GPU{'s' if count > 1 else ''} ({VISIBLE_ENV}): "
            f"{len(visible)} are visible, and {len(free)} of them are free.",
            next_step=_NEXT_STEP,
        )
    return tuple(free[:count])


def leaves_half_a_gpu(vllm_args: Sequence[str]) -> bool:
    """Return whether arguments of vLLM give an engine at most half of the memory of its GPU."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--gpu-memory-utilization", type=float, default=1.0)
    try:
        known, _ = parser.parse_known_args(vllm_args)
    except argparse.ArgumentError:
        return False
    share: float = known.gpu_memory_utilization
    return share <= _HALF


def check_memory(label: str, folder: Path, cache_gib: int, meminfo: Path = _MEMORY) -> None:
    """Check that the machine has memory for another engine on its CPU.

    Args:
        label: The version that it is to serve.
        folder: Holds its weights.
        cache_gib: Size of its key/value cache.
        meminfo: Where the kernel states the memory; without such a file nothing is checked.

    Raises:
        ConfigurationError: Weights and cache are larger than the memory that is available.
    """
    available = _available_bytes(meminfo)
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    needed = weights + cache_gib * _GIB
    if available is not None and needed > available:
        raise ConfigurationError(
            f"An engine of its own for {label} needs {needed / _GIB:.1f} GiB of memory for weights and cache "
            f"(kv_cache_gib); {available / _GIB:.1f} GiB are available.",
            next_step=_NEXT_STEP,
        )


def _available_bytes(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
