"""Dr. GRPO."""

from collections.abc import Sequence
from typing import ClassVar

from .base import Default
from .choices import LossAggregation
from .policy_gradient import GroupRelative


class DrGrpo(GroupRelative):
    """GRPO without division by a group's standard deviation or a row's length (Liu et al. 2025)."""

    name = "dr_grpo"
    title = "Dr. GRPO"
    defaults: ClassVar = {
        "loss_aggregation": Default(LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM, "Liu et al. 2025, section 3.2"),
    }

    def advantages(self, rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
        """Return ``R_i - mean(R)`` (Liu et al. 2025, section 3.2)."""
        from spanloop.converters.credit import group_advantages  # noqa: PLC0415 - imports polars

        del tokens
        return group_advantages(rewards, by_deviation=False)
