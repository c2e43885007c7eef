# pyright: basic
"""Resolve device, precision and micro-batches of a job on the host whose process trains.

Invariant: ``auto`` never means the machine of the scheduler. A job that starts its own Ray cluster trains on this host;
a job on a running cluster asks a task on one of the nodes that it can reserve, which have GPUs where the cluster has
one.
"""

import subprocess
import sys
from typing import Any, NamedTuple

from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.errors import JobError
from spanloop.training.models.memory_estimate import (
    USABLE_SHARE,
    MemoryFactors,
    estimate_on_gpus,
    fits_all_activations,
    gpu_tokens,
)
from spanloop.training.models.model_shape import read_shape
from spanloop.training.spec.choices import Device
from spanloop.training.spec.defaults import MICRO_BATCH_TOKENS

from .train_plan import TrainPlan

_GB = 1e9


class Compute(NamedTuple):
    """How a host computes."""

    device: Device
    """CPU or CUDA."""
    bfloat16: bool
    """The CPU has instructions for bfloat16; CUDA always computes in it."""
    gpus: int = 1
    """CUDA devices that ranks may use, one each."""
    free_bytes: int = 0
    """Free memory of the fullest CUDA device."""


def resolve_compute(plan: TrainPlan) -> TrainPlan:
    """Return the plan with the device, precision and size of micro-batches of the host that trains.

    Raises:
        JobError: CUDA was requested and there is none, there are fewer GPUs than ranks, their memory is too small, or
            the plan has a setting of CUDA and trains on a CPU.
    """
    compute = cluster_compute(plan) if plan.run.ray_address else local_compute(plan.device)
    if compute.device is Device.CUDA and compute.gpus < plan.run.ranks:
        raise JobError(
            f"The job asks for {plan.run.ranks} ranks, one on each GPU, and there are {compute.gpus} GPUs.",
            next_step="Submit it with fewer gpus_per_node, or with device cpu.",
        )
    if compute.device is Device.CPU and plan.run.offload:
        raise JobError(
            "The job trains on a CPU, which has weights and optimiser states in the host's memory: it has no offload.",
            next_step="Submit it without offload.",
        )
    tokens = plan.micro_batch_tokens or _auto_tokens(plan, compute)
    update = {
        "device": compute.device,
        "bfloat16": compute.bfloat16 if plan.bfloat16 is None else plan.bfloat16,
        "micro_batch_tokens": tokens,
        "checkpoint_activations": compute.device is Device.CUDA and not _fits_all_activations(plan, compute, tokens),
    }
    return plan.model_copy(update=update)


def _fits_all_activations(plan: TrainPlan, compute: Compute, tokens: int) -> bool:
    shape, factors = read_shape(plan.model_path), MemoryFactors.of(plan)
    return fits_all_activations(shape, factors, micro_batch_tokens=tokens, free_bytes=compute.free_bytes)


def _auto_tokens(plan: TrainPlan, compute: Compute) -> int:
    """Return the tokens of a micro-batch that the memory of the device has room for."""
    if compute.device is Device.CPU:
        return max(MICRO_BATCH_TOKENS, plan.longest_row_tokens)
    shape, factors = read_shape(plan.model_path), MemoryFactors.of(plan)
    tokens = gpu_tokens(shape, factors, free_bytes=compute.free_bytes)
    if tokens < plan.longest_row_tokens:
        needed = estimate_on_gpus(shape, factors, micro_batch_tokens=plan.longest_row_tokens).gpu.total
        raise JobError(
            f"The job needs about {needed / _GB:.0f} GB on each GPU for a row of {plan.longest_row_tokens:,} tokens; "
            f"{compute.free_bytes / _GB:.0f} GB are free, {USABLE_SHARE:.0%} of them usable.",
            next_step="Submit it with lora_rank, offload, more gpus_per_node or nodes, shorter rows "
            "(max_prompt_tokens, max_response_tokens), or pause_serving; or give vLLM a smaller share: "
            "spanloop up --vllm-args '--gpu-memory-utilization 0.4'.",
        )
    return max(tokens, plan.longest_row_tokens)


def local_compute(requested: Device) -> Compute:
    """Return how this host computes.

    Raises:
        JobError: CUDA was requested and torch finds none.
    """
    if requested is Device.CPU:
        return Compute(Device.CPU, computes_bfloat16())
    import torch  # noqa: PLC0415 - seconds

    if torch.cuda.is_available():
        return Compute(Device.CUDA, bfloat16=True, gpus=torch.cuda.device_count(), free_bytes=free_gpu_bytes())
    if requested is Device.CUDA:
        raise JobError(
            f"The job asks for CUDA and torch {torch.__version__} sees no CUDA device.",
            next_step="Install a CUDA build of torch, or submit with device auto or cpu.",
        )
    return Compute(Device.CPU, computes_bfloat16())


def free_gpu_bytes() -> int:
    """Return the free memory of the CUDA device that has the least.

    Measured in a process of its own: asking leaves a CUDA context of about half a gigabyte in the one that asks.

    Raises:
        JobError: CUDA does not answer.
    """
    code = (
        "import torch; count = torch.cuda.device_count(); "
        "print(min(torch.cuda.mem_get_info(number)[0] for number in range(count)))"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise JobError(
            f"CUDA does not say how much memory is free: {asked.stderr.strip()[-300:]}",
            next_step="Check the GPU with nvidia-smi.",
        )
    return int(asked.stdout)


def cluster_compute(plan: TrainPlan) -> Compute:
    """Return how the nodes compute that the plan's Ray cluster has for it.

    Raises:
        JobError: The cluster does not answer, CUDA was requested and it has no GPU, it has not enough free nodes, or
            one of them was lost.
    """
    import ray  # noqa: PLC0415 - after the environment is set
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    from .ray_cluster.node_watch import watched_nodes  # noqa: PLC0415
    from .ray_cluster.placement import reserve_nodes  # noqa: PLC0415
    from .ray_cluster.session import cluster_connection  # noqa: PLC0415

    with cluster_connection(plan):
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        has_gpus = resources.get("GPU", 0) >= 1
        if plan.device is Device.CUDA and not has_gpus:
            raise JobError(
                f"The job asks for CUDA and the Ray cluster {plan.run.ray_address} has no GPU.",
                next_step="Add a machine with a GPU to the cluster, or submit with device auto or cpu.",
                is_transient=plan.run.wait_for_nodes,
            )
        # a cluster without GPUs never trains on a GPU that Ray did not lend
        device = Device.CUDA if has_gpus and plan.device is not Device.CPU else Device.CPU
        groups = reserve_nodes(plan.model_copy(update={"device": device}))
        task: Any = ray.remote(
            num_cpus=1,
            num_gpus=int(device is Device.CUDA),
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(placement_group=groups[0]),
        )(local_compute)
        with watched_nodes(plan, groups):
            answer: Compute = ray.get(task.remote(device))
        # the task saw only the GPU that Ray lent it
        return answer._replace(gpus=plan.run.ranks)
