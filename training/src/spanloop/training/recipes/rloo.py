"""RLOO."""

from collections.abc import Sequence
from typing import ClassVar

from .base import Default
from .choices import LossAggregation
from .policy_gradient import GroupRelative


class Rloo(GroupRelative):
    """REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024)."""

    name = "rloo"
    title = "RLOO"
    leaves_one_out = True
    defaults: ClassVar = {
        "loss_aggregation": Default(
            LossAggregation.SEQ_MEAN_TOKEN_SUM,
            "Ahmadian et al. 2024: a row is one action, whose log-probability is the sum of its tokens'",
        ),
    }

    def advantages(self, rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
        """Return ``R_i`` minus the mean of the others (Ahmadian et al. 2024, equation 8)."""
        from spanloop.converters.credit import leave_one_out  # noqa: PLC0415 - imports polars

        del tokens
        return leave_one_out(rewards)
