# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run SFT on verl's trainer, which is written for ``torchrun``: each rank runs it with ``torchrun``'s variables.

verl's Ray variant loads data with eight processes on any machine, so the ranks are our own tasks (:mod:`.ranks`).
"""

from pathlib import Path
from typing import Any

from spanloop.training.checkpoints import mark_complete
from spanloop.training.recipes.sft import sft_overrides

from .ranks import run_ranks
from .sample_records import SftRecorder
from .train_plan import TrainPlan
from .verl_config import compose


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    run_ranks(plan, _fit)


def _fit(plan: TrainPlan) -> None:
    from verl.trainer.sft_trainer import SFTTrainer  # noqa: PLC0415 - reads the rank when it is imported
    from verl.utils.distributed import initialize_global_process_group  # noqa: PLC0415

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
    MarkingTrainer(config=config).fit()


class _MarkingHandler:
    """verl's checkpoint handler; rank 0 writes our marker after each save."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def load_checkpoint(self) -> int:
        return int(self._handler.load_checkpoint())

    def save_checkpoint(self, step: int) -> None:
        # returns when every rank has saved
        self._handler.save_checkpoint(step=step)
        if self._handler.rank == 0:
            mark_complete(Path(self._handler.default_local_dir) / f"global_step_{step}")
