# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Run SFT on verl's trainer: one data-parallel rank.

verl's SFT trainer is written for ``torchrun``; with one rank it needs only ``torchrun``'s environment variables
(:mod:`.ranks`). verl's Ray variant loads data with eight processes on any machine, so the trainer runs as our own task.
"""

from pathlib import Path
from typing import Any

from spanloop.training.checkpoints import mark_complete
from spanloop.training.recipes.sft import sft_overrides

from .ranks import run_rank
from .train_plan import TrainPlan
from .verl_config import compose


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    run_rank(plan, _fit)


def _fit(plan: TrainPlan) -> None:
    from verl.trainer.sft_trainer import SFTTrainer  # noqa: PLC0415 - reads the rank when it is imported
    from verl.utils.distributed import initialize_global_process_group  # noqa: PLC0415

    class MarkingTrainer(SFTTrainer):
        """Marks each checkpoint as complete; verl's trainer has no hook for it."""

        def _build_ckpt_handler(self) -> None:
            super()._build_ckpt_handler()
            stock: Any = self.ckpt_handler
            self.ckpt_handler: Any = _MarkingHandler(stock)

    config = compose("sft_trainer_engine", sft_overrides(plan))
    initialize_global_process_group()
    MarkingTrainer(config=config).fit()


class _MarkingHandler:
    """verl's checkpoint handler; writes our marker after each save."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def load_checkpoint(self) -> int:
        return int(self._handler.load_checkpoint())

    def save_checkpoint(self, step: int) -> None:
        self._handler.save_checkpoint(step=step)
        mark_complete(Path(self._handler.default_local_dir) / f"global_step_{step}")
