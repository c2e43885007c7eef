# pyright: basic
"""The Ray cluster of one job.

Without an address the job starts its own cluster in this process: on the loopback interface, with a new token
(:mod:`.main` sets it before Ray is imported), no dashboard and only the worker processes that verl requests. Ray's
daemons die with their parent, so the cluster ends with this process. Other clusters on the host are not touched.
"""

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager

import ray

from spanloop.training.spec.choices import Device

from .train_plan import TrainPlan

_LOGICAL_CPUS = 7
"""TransferQueue's two actors take one each and verl's resource pool up to three, besides one for each rank; logical,
nothing is reserved."""
_OBJECT_STORE_BYTES = 512 * 1024 * 1024
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
def ray_session(plan: TrainPlan) -> Generator[None]:
    """Connect to the plan's Ray cluster, or start one; disconnect or stop it afterwards."""
    if plan.run.ray_address:
        environment = {
            name: value for name, value in os.environ.items() if name.startswith(_FORWARDED) and name not in _SECRETS
        }
        ray.init(address=plan.run.ray_address, runtime_env={"env_vars": environment}, logging_level=logging.WARNING)
    else:
        _start_local(plan)
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
