# pyright: basic
"""Run SFT on verl's trainer, which is written for ``torchrun``: each rank runs it with ``torchrun``'s variables.

verl's Ray variant loads data with eight processes on any machine, so the ranks are our own tasks (:mod:`.ranks`).
"""

from ..overrides.sft import sft_overrides
from ..ranks import run_ranks
from ..sample_records import SftRecorder
from ..train_plan import TrainPlan


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    run_ranks(plan, _fit)


def _fit(plan: TrainPlan) -> None:
    from .sft_trainer import MarkingSftTrainer  # noqa: PLC0415 - verl reads the rank when it is imported

    MarkingSftTrainer(plan, sft_overrides(plan), SftRecorder(plan.samples_path)).fit()
