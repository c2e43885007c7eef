"""The overrides of one AdamW optimiser."""

from typing import Final

from spanloop.training.spec.choices import OptimizerDtype

from ..train_plan import TrainPlan

_BFLOAT16_OPTIMISER: Final = "spanloop.training.verl_plugin.engine.bfloat16_adamw"
"""verl takes its ``AdamW`` instead of that of ``torch.optim``."""


def optimiser_overrides(plan: TrainPlan, *, optimiser: str, learning_rate: float) -> list[str]:
    """Return learning rate, schedule, weight decay and gradient clip; ``optimiser`` is its path in verl's config."""
    is_small = plan.optimiser.optimizer_dtype is OptimizerDtype.BFLOAT16
    return [
        *([f"{optimiser}.optimizer_impl={_BFLOAT16_OPTIMISER}"] if is_small else []),
        f"{optimiser}.lr={learning_rate}",
        f"{optimiser}.lr_scheduler_type={plan.optimiser.lr_scheduler_type}",
        f"{optimiser}.lr_warmup_steps={plan.optimiser.lr_warmup_steps}",
        f"{optimiser}.weight_decay={plan.optimiser.weight_decay}",
        f"{optimiser}.clip_grad={plan.optimiser.clip_grad}",
    ]
