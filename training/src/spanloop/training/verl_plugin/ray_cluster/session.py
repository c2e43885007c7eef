# pyright: basic
"""The connection of one job to a Ray cluster.

Without an address the job starts its own cluster in this process: on the loopback interface, with a new token
(:mod:`..main` sets it before Ray is imported), no dashboard and only the worker processes that verl requests. Ray's
daemons die with their parent, so the cluster ends with this process. Other clusters on the host are not touched.

Invariant: what a job starts on a running cluster belongs to its connection. Ray gives each connection a namespace, and
removes its actors, tasks and placement groups when the connection ends, also when this process is killed.
"""

import logging
import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import ray

from spanloop.foundation.errors import JobError
from spanloop.training.spec.choices import Device

from ..train_plan import TrainPlan
from .node_watch import watched_nodes
from .placement import reserve_nodes

_LOGICAL_CPUS = 4
"""CPUs of the job's own cluster besides one for each rank; logical, nothing is reserved."""
_OBJECT_STORE_BYTES = 512 * 1024 * 1024
_CONNECT_S = 5.0
_FORWARDED = (
    "VERL_",
    "OMP_",
    "HF_",
    "TRANSFORMERS_",
    "TRANSFER_QUEUE_",
    "TOKENIZERS_",
    "TQ_",
    "TQDM_",
    "TORCH_LOGS",
    "TENSORBOARD_",
    "WANDB_",
    "RAY_WARN_",
    "PYTHONWARNINGS",
)

_SECRETS = frozenset({"WANDB_API_KEY"})
"""Ray shows the environment of its tasks to everyone who can reach its cluster."""


@contextmanager
def ray_session(plan: TrainPlan) -> Generator[list[Any]]:
    """Connect to the plan's Ray cluster, or start one, and reserve its nodes; disconnect or stop it afterwards.

    Yields:
        The placement group of each node, with a bundle for each rank.

    Raises:
        JobError: The cluster does not answer, or has not enough free nodes.
        NodeLostError: A reserved node was lost meanwhile.
    """
    with _connected(plan):
        groups = reserve_nodes(plan)
        if not plan.run.ray_address:
            yield groups
            return
        with watched_nodes(plan, groups):
            yield groups


@contextmanager
def _connected(plan: TrainPlan) -> Generator[None]:
    if not plan.run.ray_address:
        _start_local(plan)
        try:
            yield
        finally:
            ray.shutdown()
        return
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(_FORWARDED) and name not in _SECRETS
    }
    with cluster_connection(plan, {"env_vars": environment}):
        yield


@contextmanager
def cluster_connection(plan: TrainPlan, runtime_env: Mapping[str, Any] | None = None) -> Generator[None]:
    """Connect to the running cluster at the plan's ``ray_address``; disconnect afterwards.

    Args:
        plan: The plan.
        runtime_env: What Ray gives the workers of this connection.

    Raises:
        JobError: It does not answer.
    """
    address = plan.run.ray_address
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise JobError(
            f"ray_address is {address!r}; expected host:port of the head of a Ray cluster.",
            next_step="Run the job's runner on a node of the cluster, and submit the job with the head's address; "
            "Ray's client (ray://) cannot train.",
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S):
            pass
        ray.init(address=address, runtime_env=runtime_env, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError) as error:
        raise JobError(
            f"This host has no connection to the Ray cluster {address}: {error}.",
            next_step="Check the address, and that this host is a node of the cluster (ray start --address "
            f"{address}); Ray needs one beside the process that trains.",
            is_transient=plan.run.wait_for_nodes,
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _start_local(plan: TrainPlan) -> None:
    ray.init(
        address="local",
        num_cpus=_LOGICAL_CPUS + plan.run.ranks,
        num_gpus=plan.run.ranks if plan.device is Device.CUDA else 0,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level=logging.WARNING,
        _temp_dir=str(plan.ray_temp_dir),
        _node_ip_address="127.0.0.1",
    )
