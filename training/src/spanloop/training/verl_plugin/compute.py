# pyright: basic
"""Resolve the device and precision of a job on the host whose process trains.

Invariant: ``auto`` never means the machine of the scheduler. A job that starts its own Ray cluster trains on this host;
a job on a running cluster asks a task there, which Ray places on a machine with a GPU where the cluster has one.
"""

import logging
from typing import Any, NamedTuple

from spanloop.cpu_features import computes_bfloat16
from spanloop.semconv.errors import JobError
from spanloop.training.job_spec import Device

from .train_plan import TrainPlan


class Compute(NamedTuple):
    """How a host computes."""

    device: Device
    """CPU or CUDA."""
    bfloat16: bool
    """The CPU has instructions for bfloat16; CUDA always computes in it."""
    gpus: int = 1
    """CUDA devices that ranks may use, one each."""


def resolve_compute(plan: TrainPlan) -> TrainPlan:
    """Return the plan with the device and precision of the host that trains.

    Raises:
        JobError: CUDA was requested and there is none, or there are fewer GPUs than ranks.
    """
    compute = cluster_compute(plan.ray_address, plan.device) if plan.ray_address else local_compute(plan.device)
    if compute.device is Device.CUDA and compute.gpus < plan.ranks:
        raise JobError(
            f"The job asks for {plan.ranks} ranks, one on each GPU, and there are {compute.gpus} GPUs.",
            next_step="Submit it with fewer ranks, or with device cpu.",
        )
    bfloat16 = compute.bfloat16 if plan.bfloat16 is None else plan.bfloat16
    return plan.model_copy(update={"device": compute.device, "bfloat16": bfloat16})


def local_compute(requested: Device) -> Compute:
    """Return how this host computes.

    Raises:
        JobError: CUDA was requested and torch finds none.
    """
    if requested is Device.CPU:
        return Compute(Device.CPU, computes_bfloat16())
    import torch  # noqa: PLC0415 - seconds

    if torch.cuda.is_available():
        return Compute(Device.CUDA, bfloat16=True, gpus=torch.cuda.device_count())
    if requested is Device.CUDA:
        raise JobError(
            f"The job asks for CUDA and torch {torch.__version__} sees no CUDA device.",
            next_step="Install a CUDA build of torch, or submit with device auto or cpu.",
        )
    return Compute(Device.CPU, computes_bfloat16())


def cluster_compute(address: str, requested: Device) -> Compute:
    """Return how the machine of the Ray cluster at ``address`` computes on which Ray would place the trainer.

    Raises:
        JobError: CUDA was requested and the cluster has no GPU.
    """
    import ray  # noqa: PLC0415 - after the environment is set

    ray.init(address=address, logging_level=logging.WARNING)
    try:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        gpus = resources.get("GPU", 0)
        if requested is Device.CUDA and gpus < 1:
            raise JobError(
                f"The job asks for CUDA and the Ray cluster {address} has no GPU.",
                next_step="Add a machine with a GPU to the cluster, or submit with device auto or cpu.",
            )
        num_gpus = int(requested is not Device.CPU and gpus >= 1)
        task: Any = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=0)(local_compute)
        # the task's own host decides, so a cluster without GPUs never trains on a GPU that Ray did not lend
        answer: Compute = ray.get(task.remote(requested if num_gpus else Device.CPU))
        # the task saw only the GPU that Ray lent it
        return answer._replace(gpus=int(gpus))
    finally:
        ray.shutdown()
