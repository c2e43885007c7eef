# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""verl's resource pools on the nodes that a job has reserved (:mod:`.placement`)."""

from collections.abc import Sequence
from typing import Any

import ray
from verl.single_controller.ray import RayResourcePool, ResourcePoolManager
from verl.single_controller.ray import base as ray_base

from ..master_port import free_port


class ReservedPools(ResourcePoolManager):
    """Resource pools on the nodes that the job has reserved; verl's own request more GPUs.

    Attributes:
        groups: The placement group of each node.
        use_gpu: Whether each bundle has a GPU.
    """

    groups: Sequence[Any] = ()
    use_gpu = False

    def create_resource_pool(self) -> None:
        """Make the pools of the specification."""
        ray_base.get_master_addr_port = ray.remote(_address_of_rank_0)  # verl's own may lose its port before it listens
        for name, processes in self.resource_pool_spec.items():
            # one process computes for all roles of a rank
            pool: Any = RayResourcePool(
                process_on_nodes=processes, use_gpu=self.use_gpu, max_colocate_count=1, name_prefix=name
            )
            pool.pgs = list(self.groups)
            self.resource_pool_dict[name] = pool


def _address_of_rank_0(master_port_range: object = None) -> tuple[str, str]:
    """Return address and port at which rank 0 listens on this node, as verl's function of that purpose."""
    del master_port_range
    return ray.util.get_node_ip_address().strip("[]"), str(free_port())
