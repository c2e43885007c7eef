# pyright: basic
"""Run SFT on verl's trainer: one data-parallel rank.

verl's Ray variant of its SFT trainer loads data with eight processes on any machine, so the trainer runs as our own
task (:mod:`.ranks`).
"""

from spanloop.training.recipes.sft import sft_overrides

from .ranks import run_rank
from .train_plan import TrainPlan


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    run_rank(plan, _fit)


def _fit(plan: TrainPlan) -> None:
    from .marking_trainer import MarkingTrainer  # noqa: PLC0415 - verl reads the rank when it is imported

    MarkingTrainer(sft_overrides(plan)).fit()
