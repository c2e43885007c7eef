# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run SFT on verl's trainer: one Ray task, one data-parallel rank.

verl's SFT trainer is written for ``torchrun``; with one rank it needs only ``torchrun``'s environment variables. verl's
Ray variant loads data with eight processes on any machine, so the trainer runs as our own Ray task.
"""

import os
import socket
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayTaskError

from spanloop.training.checkpoints import mark_complete
from spanloop.training.job_spec import Device
from spanloop.training.recipes.sft import sft_overrides

from .ray_cluster import ray_session
from .sample_records import SftRecorder
from .train_plan import TrainPlan
from .verl_config import compose


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    with ray_session(plan):
        task: Any = ray.remote(num_cpus=1, num_gpus=int(plan.device is Device.CUDA), max_retries=0)(_fit)
        try:
            ray.get(task.remote(plan))
        except RayTaskError as error:
            # The original exception, without Ray's wrapper.
            raise (error.cause or error) from error


def _fit(plan: TrainPlan) -> None:
    _become_only_rank()
    from verl.trainer.sft_trainer import SFTTrainer  # noqa: PLC0415 - reads the rank when it is imported
    from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group  # noqa: PLC0415

    recorder = SftRecorder(plan.samples_path)

    class MarkingTrainer(SFTTrainer):
        """Marks each checkpoint as complete and records each row; verl's trainer has no hooks for it."""

        def _build_ckpt_handler(self) -> None:
            super()._build_ckpt_handler()
            stock: Any = self.ckpt_handler
            self.ckpt_handler: Any = _MarkingHandler(stock)

        def _build_engine(self) -> None:
            super()._build_engine()
            client: Any = self.training_client
            client.set_loss_fn(recorder.around_loss(self.loss_fn))
            client.train_batch = recorder.around_step(client.train_batch)

        def fit(self) -> None:
            recorder.step = self.resume_global_step
            super().fit()

    config = compose("sft_trainer_engine", sft_overrides(plan))
    initialize_global_process_group()
    try:
        MarkingTrainer(config=config).fit()
    finally:
        destroy_global_process_group()


class _MarkingHandler:
    """verl's checkpoint handler; writes our marker after each save."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def load_checkpoint(self) -> int:
        return int(self._handler.load_checkpoint())

    def save_checkpoint(self, step: int) -> None:
        self._handler.save_checkpoint(step=step)
        mark_complete(Path(self._handler.default_local_dir) / f"global_step_{step}")


def _become_only_rank() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
