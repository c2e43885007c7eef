# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run a function on every data-parallel rank of a job, with the environment variables of ``torchrun``.

verl's engine and its SFT trainer find their rank in these variables. On the backbone ``ray`` each rank is a Ray task
on one of the job's nodes; on ``debug`` the only rank is this process.
"""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, NamedTuple

from spanloop.training.spec.choices import Backbone, Device

from .master_port import free_port
from .train_plan import TrainPlan

_LOOPBACK = "127.0.0.1"


class Endpoint(NamedTuple):
    """The address at which rank 0 listens for the others."""

    host: str
    port: int


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

    from .ray_cluster.session import ray_session  # noqa: PLC0415

    with ray_session(plan) as groups:
        running = _start_tasks(plan, fit, groups)
        try:
            while running:
                ended, running = ray.wait(running)
                ray.get(ended)
        except RayTaskError as error:
            # The original exception, without Ray's wrapper.
            raise (error.cause or error) from error


def _start_tasks(plan: TrainPlan, fit: Callable[[TrainPlan], None], groups: list[Any]) -> list[Any]:
    """Start one task for each rank, in the placement groups of the job's nodes."""
    import ray  # noqa: PLC0415
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy  # noqa: PLC0415

    remote: Any = ray.remote
    placed = [
        {
            "num_cpus": 1,
            "max_retries": 0,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(placement_group=group),
        }
        for group in groups
        for _ in range(plan.run.gpus_per_node)
    ]
    endpoint = ray.get(remote(**placed[0])(_free_endpoint).remote(is_one_node=plan.run.nodes == 1))
    num_gpus = int(plan.device is Device.CUDA)
    tasks: list[Any] = [remote(num_gpus=num_gpus, **options)(_fit_as_rank) for options in placed]
    return [task.remote(plan, fit, rank, endpoint) for rank, task in enumerate(tasks)]


def _fit_as_rank(plan: TrainPlan, fit: Callable[[TrainPlan], None], rank: int, endpoint: Endpoint) -> None:
    with this_rank(rank, plan.run.ranks, plan.run.gpus_per_node, endpoint):
        fit(plan)


@contextmanager
def this_rank(
    rank: int = 0, ranks: int = 1, ranks_of_node: int = 1, endpoint: Endpoint | None = None
) -> Generator[None]:
    """Make this process a rank; afterwards its process group has ended and the variables are as before.

    Args:
        rank: Its number.
        ranks: Their number.
        ranks_of_node: Their number on this node.
        endpoint: Where rank 0 listens; None takes a free port of this host.
    """
    host, port = endpoint or _free_endpoint(is_one_node=True)
    values = {
        "RANK": str(rank),
        # a rank sees only the GPU that Ray lent it
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks_of_node),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
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


def _free_endpoint(*, is_one_node: bool) -> Endpoint:
    """Return a free port of this host, at the address under which the job's nodes reach it."""
    host = _LOOPBACK
    if not is_one_node:
        import ray  # noqa: PLC0415

        host = str(ray.util.get_node_ip_address())
    return Endpoint(host, free_port())
