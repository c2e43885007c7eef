# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run a function on every data-parallel rank of a job, with the environment variables of ``torchrun``.

verl's engine and its SFT trainer find their rank in these variables. On the backbone ``ray`` each rank is a Ray task,
all on one node; on ``debug`` the only rank is this process.
"""

import os
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from spanloop.training.spec.choices import Backbone, Device

from .train_plan import TrainPlan

_LOOPBACK = "127.0.0.1"


def run_ranks(plan: TrainPlan, fit: Callable[[TrainPlan], None]) -> None:
    """Run ``fit`` on every rank of the job and return when all have ended.

    The first exception of a rank is raised as it was there; the other ranks end with the job's Ray session.
    """
    if plan.run.backbone is Backbone.DEBUG:
        with this_rank():
            fit(plan)
        return
    import ray  # noqa: PLC0415 - the backbone debug needs none
    from ray.exceptions import RayTaskError  # noqa: PLC0415

    from .ray_cluster import ray_session  # noqa: PLC0415

    with ray_session(plan):
        running = _start_tasks(plan, fit)
        try:
            while running:
                ended, running = ray.wait(running)
                ray.get(ended)
        except RayTaskError as error:
            # The original exception, without Ray's wrapper.
            raise (error.cause or error) from error


def _start_tasks(plan: TrainPlan, fit: Callable[[TrainPlan], None]) -> list[Any]:
    """Start one task for each rank, all on one node."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    num_gpus = int(plan.device is Device.CUDA)
    bundle = {"CPU": 1.0} | ({"GPU": 1.0} if num_gpus else {})
    group = ray.util.placement_group([bundle] * plan.run.ranks, strategy="STRICT_PACK")
    on_node = PlacementGroupSchedulingStrategy(placement_group=group)
    remote: Any = ray.remote
    options = {"num_cpus": 1, "max_retries": 0, "scheduling_strategy": on_node}
    port = ray.get(remote(**options)(_free_port).remote())
    task: Any = remote(num_gpus=num_gpus, **options)(_fit_as_rank)
    return [task.remote(plan, fit, rank, port) for rank in range(plan.run.ranks)]


def _fit_as_rank(plan: TrainPlan, fit: Callable[[TrainPlan], None], rank: int, port: int) -> None:
    with this_rank(rank, plan.run.ranks, port):
        fit(plan)


@contextmanager
def this_rank(rank: int = 0, ranks: int = 1, port: int | None = None) -> Generator[None]:
    """Make this process a rank; afterwards its process group has ended and the variables are as before.

    Args:
        rank: Its number.
        ranks: Their number.
        port: Where rank 0 listens; None takes a free one.
    """
    values = {
        "RANK": str(rank),
        # a rank sees only the GPU that Ray lent it
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(port or _free_port()),
    }
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
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
