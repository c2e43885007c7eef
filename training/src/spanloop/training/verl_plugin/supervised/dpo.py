# pyright: basic
"""Run DPO as an extension of verl's SFT trainer; see :mod:`.preference_trainer`."""

from ..overrides.dpo import dpo_overrides
from ..ranks import run_ranks
from ..train_plan import TrainPlan


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    run_ranks(plan, _fit)


def _fit(plan: TrainPlan) -> None:
    from .preference_trainer import PreferenceTrainer  # noqa: PLC0415 - verl reads the rank when it is imported

    PreferenceTrainer(plan, dpo_overrides(plan)).fit()
