"""GRPO."""

from collections.abc import Sequence
from math import sqrt
from typing import ClassVar

from .base import Default
from .choices import LossAggregation
from .policy_gradient import DEVIATION_EPSILON, GroupRelative


class Grpo(GroupRelative):
    """Group-relative policy optimisation (Shao et al. 2024)."""

    name = "grpo"
    title = "GRPO"
    defaults: ClassVar = {
        "loss_aggregation": Default(LossAggregation.SEQ_MEAN_TOKEN_MEAN, "Shao et al. 2024, equation 3"),
        "kl_coefficient": Default(0.04, "DeepSeekMath (Shao et al. 2024, section 4.2)"),
    }

    def advantages(self, rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
        """Return ``(R_i - mean(R)) / (std(R) + 1e-6)`` (Shao et al. 2024, section 4.1.2)."""
        from spanloop.converters.credit import group_advantages  # noqa: PLC0415 - imports polars

        del tokens
        return group_advantages(rewards, epsilon=DEVIATION_EPSILON)

    def deviation(self, variance: float) -> float:
        """Return ``sqrt(variance) + 1e-6``."""
        return sqrt(variance) + DEVIATION_EPSILON
