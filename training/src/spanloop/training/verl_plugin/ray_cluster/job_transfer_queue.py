# pyright: basic
"""Give each job of a Ray cluster a TransferQueue of its own.

TransferQueue registers its controller under a fixed name in a fixed Ray namespace, so all jobs of a cluster would
share one queue. Importing this module lets it use the namespace of the job, which Ray makes for each connection; verl
imports it in every process of the job, because ``VERL_USE_EXTERNAL_MODULES`` names it.

Invariant: the queue lives as long as its trainer. Controller and storage are on the trainer's node, so no other node
that is killed can take them, which TransferQueue's clients would wait for.
"""

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from transfer_queue import interface
from transfer_queue.storage.bootstrap import simple_storage_bootstrap

_CONTROLLER = "TransferQueueController"


class _OnTrainersNode:
    """An actor class whose actors run on the node of this process and take no CPU from the ranks.

    Args:
        actor_class: The class.
    """

    def __init__(self, actor_class: Any) -> None:
        self._actor_class = actor_class

    def options(self, *, name: str, **_: Any) -> Any:
        """Return the class with ``name`` in the job's namespace; TransferQueue's namespace and node do not count."""
        node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return self._actor_class.options(name=name, num_cpus=0, scheduling_strategy=node)


_join: Any = interface._init_from_existing  # noqa: SLF001 - its namespace is no setting of TransferQueue


def _join_queue_of_job() -> bool:
    """Become a client of the job's queue; return whether it has one."""
    if interface._TQ_CONTROLLER is None:  # noqa: SLF001 - TransferQueue looks up only what is None
        try:
            interface._TQ_CONTROLLER = ray.get_actor(_CONTROLLER)  # noqa: SLF001
        except ValueError:
            return False
    return bool(_join())


interface._init_from_existing = _join_queue_of_job  # noqa: SLF001
setattr(interface, _CONTROLLER, _OnTrainersNode(interface.TransferQueueController))
simple_storage_bootstrap.SimpleStorageUnit = _OnTrainersNode(simple_storage_bootstrap.SimpleStorageUnit)
