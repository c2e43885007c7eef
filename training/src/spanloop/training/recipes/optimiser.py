"""The overrides of one AdamW optimiser."""

from spanloop.training.verl_plugin.train_plan import TrainPlan


def optimiser_overrides(plan: TrainPlan, *, optimiser: str, learning_rate: float) -> list[str]:
    """Return learning rate, schedule, weight decay and gradient clip; ``optimiser`` is its path in verl's config."""
    return [
        f"{optimiser}.lr={learning_rate}",
        f"{optimiser}.lr_scheduler_type={plan.lr_scheduler_type}",
        f"{optimiser}.lr_warmup_steps={plan.lr_warmup_steps}",
        f"{optimiser}.weight_decay={plan.weight_decay}",
        f"{optimiser}.clip_grad={plan.clip_grad}",
    ]
