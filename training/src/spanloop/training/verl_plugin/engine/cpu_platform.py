# pyright: basic
"""A CPU platform for verl 0.9.1, which has none.

Importing this module registers platform ``cpu`` through verl's plugin API and patches the places where verl assumes an
accelerator. verl imports it in every process of a CPU job because ``VERL_USE_EXTERNAL_MODULES`` names it; a CUDA job
does not load it. It changes nothing unless ``VERL_PLATFORM`` is ``cpu``.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import fsdp
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _nothing(*_: Any, **__: Any) -> None:
    return None


class _CpuModule(ModuleType):
    """A replacement for ``torch.cuda`` on a machine without CUDA: one device, no memory statistics."""

    get_rng_state = staticmethod(torch.get_rng_state)
    set_rng_state = staticmethod(torch.set_rng_state)
    manual_seed = staticmethod(torch.manual_seed)
    manual_seed_all = staticmethod(torch.manual_seed)

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> str:
        return "cpu"

    @staticmethod
    def get_device_name(*_: Any) -> str:
        return "cpu"

    @staticmethod
    def mem_get_info(*_: Any) -> tuple[int, int]:
        return (0, 0)

    @staticmethod
    def _zero(*_: Any) -> int:
        return 0

    set_device = synchronize = empty_cache = ipc_collect = reset_peak_memory_stats = staticmethod(_nothing)
    memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _zero


_CPU = _CpuModule("spanloop_cpu_device")


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """verl's view of a machine without an accelerator."""

    @property
    def device_name(self) -> str:  # noqa: D102 - the base class documents the interface
        return "cpu"

    @property
    def vendor_name(self) -> str:  # noqa: D102
        return "cpu"

    @property
    def device_module(self) -> ModuleType:  # noqa: D102
        return _CPU

    def is_available(self) -> bool:  # noqa: D102
        return True

    def current_device(self) -> Any:  # noqa: D102
        return torch.device("cpu")

    def device_count(self) -> int:  # noqa: D102
        return 1

    def set_device(self, device_index: int) -> None:  # noqa: D102
        pass

    def synchronize(self, device_index: int | None = None) -> None:  # noqa: D102
        pass

    def manual_seed(self, seed: int) -> None:  # noqa: D102
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:  # noqa: D102
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:  # noqa: D102
        pass

    def empty_cache(self) -> None:  # noqa: D102
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002, D102
        return (None, None)

    def communication_backend_name(self) -> str:  # noqa: D102
        return "gloo"

    def visible_devices_envvar(self) -> str:  # noqa: D102
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002, D102
        yield

    def profiler_start(self) -> None:  # noqa: D102
        pass

    def profiler_stop(self) -> None:  # noqa: D102
        pass

    def ray_resource_name(self) -> str:  # noqa: D102
        return "CPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, float]:  # noqa: D102
        return {"num_cpus": num_gpus}

    def ray_noset_envvars(self) -> list[str]:  # noqa: D102
        return []

    def is_ipc_supported(self) -> bool:  # noqa: D102
        return False

    def cudart(self) -> None:  # noqa: D102
        return None


def _gloo_group_ray(timeout_second: float | None = None, backend: str | None = None) -> None:  # noqa: ARG001
    if not dist.is_initialized():
        dist.init_process_group(
            "gloo",
            rank=int(os.environ.get("RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            timeout=timedelta(seconds=timeout_second) if timeout_second else None,
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )


def _gloo_group(timeout_second: float = 36000) -> tuple[int, int, int]:
    _gloo_group_ray(timeout_second)
    return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class _UnpinnedOffloadPolicy(fsdp.CPUOffloadPolicy):
    """verl requests pinned memory for its reference model; torch refuses it without an accelerator."""

    def __init__(self, pin_memory: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - torch's own signature
        object.__setattr__(self, "pin_memory", False)


def _patch_verl() -> None:
    import verl.utils.debug as verl_debug  # noqa: PLC0415 - must follow the registration above
    import verl.utils.distributed as verl_distributed  # noqa: PLC0415

    # verl builds the backend string "cpu:gloo,{device}:{backend}", and torch rejects "cpu:gloo,cpu:gloo"
    verl_distributed.initialize_global_process_group_ray = _gloo_group_ray
    verl_distributed.initialize_global_process_group = _gloo_group
    # both log a GPU's memory and cores in every job
    verl_distributed.set_numa_affinity = _nothing
    verl_debug.log_gpu_memory_usage = _nothing
    setattr(fsdp, "CPUOffloadPolicy", _UnpinnedOffloadPolicy)  # noqa: B010 - a class cannot be assigned to, for mypy


if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
    _patch_verl()
