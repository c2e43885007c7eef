# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Reserve the nodes of a job on a Ray cluster, before anything of it starts.

Invariant: the ranks of a job are on as many nodes as ``nodes`` says, ``gpus_per_node`` on each, and all of them are
reserved or none is. Ray alone would pack the ranks of CPU nodes onto one.
"""

import time
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

from spanloop.foundation.errors import JobError
from spanloop.training.spec.choices import Device

from ..train_plan import TrainPlan

_NODE_ID = "ray.io/node-id"
"""Label that Ray gives each node."""
_WAIT_S = 30.0
"""An attempt waits for nodes so long, then it gives back what it has reserved: two jobs never wait for each other."""


def reserve_nodes(plan: TrainPlan) -> list[Any]:
    """Return a placement group for each node of the job, with a bundle of one CPU, and one GPU on CUDA, for each rank.

    Raises:
        JobError: The cluster has too few nodes with so many CPUs or GPUs, or they are not free.
    """
    bundle = {"CPU": 1.0} | ({"GPU": 1.0} if plan.device is Device.CUDA else {})
    if not plan.run.wait_for_nodes:
        _check_size(plan, bundle)
    groups: list[Any] = []
    until = time.monotonic() + _WAIT_S
    for _ in range(plan.run.nodes):
        taken = ", ".join(node_of(group) for group in groups)
        selector = {_NODE_ID: f"!in({taken})"} if taken else {}
        count = plan.run.gpus_per_node
        groups.append(placement_group([bundle] * count, "STRICT_PACK", bundle_label_selector=[selector] * count))
        if not groups[-1].wait(max(1.0, until - time.monotonic())):
            for group in groups:
                remove_placement_group(group)
            _check_size(plan, bundle)
            raise JobError(
                f"The Ray cluster{_at(plan)} is busy: {len(groups) - 1} of {plan.run.nodes} nodes with "
                f"{_share(plan, bundle)} free were found within {_WAIT_S:.0f} s.",
                next_step="Wait until other work on the cluster has ended, or add nodes.",
                is_transient=plan.run.wait_for_nodes,
            )
    return groups


def node_of(group: Any) -> str:
    """Return the id of the node of a placement group whose bundles are on one."""
    nodes: dict[int, str] = placement_group_table(group)["bundles_to_node_id"]
    return nodes[0]


def _check_size(plan: TrainPlan, bundle: dict[str, float]) -> None:
    """Check that the cluster has enough nodes that are large enough, free or not."""
    needed = {name: amount * plan.run.gpus_per_node for name, amount in bundle.items()}
    large = [
        node
        for node in ray.nodes()
        if node["Alive"] and all(node["Resources"].get(name, 0.0) >= amount for name, amount in needed.items())
    ]
    if len(large) < plan.run.nodes:
        raise JobError(
            f"The job asks for {plan.run.nodes} nodes with {_share(plan, bundle)}, and the Ray cluster{_at(plan)} has "
            f"{len(large)}.",
            next_step="Add nodes to the cluster, or submit the job with other nodes or gpus_per_node.",
            is_transient=plan.run.wait_for_nodes,
        )


def _share(plan: TrainPlan, bundle: dict[str, float]) -> str:
    count = plan.run.gpus_per_node
    return f"{count} {'GPU' if 'GPU' in bundle else 'CPU'}{'s' if count > 1 else ''} each"


def _at(plan: TrainPlan) -> str:
    return f" {plan.run.ray_address}" if plan.run.ray_address else ""
