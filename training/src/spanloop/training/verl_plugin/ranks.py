# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run a function as the data-parallel rank of a job, with the environment variables of ``torchrun``.

verl's engine and its SFT trainer find their rank in these variables. On the backbone ``ray`` the rank is a Ray task;
on ``debug`` it is this process.
"""

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from spanloop.training.job_spec import Backbone, Device

from .train_plan import TrainPlan

_LOOPBACK = "127.0.0.1"


def run_rank(plan: TrainPlan, fit: Callable[[TrainPlan], None]) -> None:
    """Run ``fit`` on the job's rank and return when it has ended; an exception is raised as it was there."""
    if plan.backbone is Backbone.DEBUG:
        with this_rank():
            fit(plan)
        return
    import ray  # noqa: PLC0415 - the backbone debug needs none
    from ray.exceptions import RayTaskError  # noqa: PLC0415

    from .ray_cluster import ray_session  # noqa: PLC0415

    with ray_session(plan):
        task: Any = ray.remote(num_cpus=1, num_gpus=int(plan.device is Device.CUDA), max_retries=0)(_fit_as_rank)
        try:
            ray.get(task.remote(plan, fit))
        except RayTaskError as error:
            # The original exception, without Ray's wrapper.
            raise (error.cause or error) from error


def _fit_as_rank(plan: TrainPlan, fit: Callable[[TrainPlan], None]) -> None:
    with this_rank():
        fit(plan)


@contextmanager
def this_rank() -> Generator[None]:
    """Make this process the only rank; afterwards its process group has ended and the variables are as before."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    before = {name: os.environ.pop(name, None) for name in names}
    os.environ.update(
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
        LOCAL_WORLD_SIZE="1",
        MASTER_ADDR=_LOOPBACK,
        MASTER_PORT=str(_free_port()),
    )
    try:
        yield
    finally:
        _destroy_process_group()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _destroy_process_group() -> None:
    import torch.distributed as dist  # noqa: PLC0415 - verl reads the rank before torch is imported

    if dist.is_initialized():
        dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])
