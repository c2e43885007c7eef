"""Direct Preference Optimization (Rafailov et al. 2023) on pairs of attempts at one task.

verl 0.9.1 lacks it. Its SFT trainer and engine do the rest: batches of pairs, optimiser, checkpoints, resume.
"""

from ..train_plan import TrainPlan
from .sft import sft_overrides


def dpo_overrides(plan: TrainPlan) -> list[str]:
    """Return the overrides of verl's ``sft_trainer_engine`` configuration; a batch is ``batch_size`` pairs."""
    return sft_overrides(plan, dataset="pair_dataset.PairDataset")
