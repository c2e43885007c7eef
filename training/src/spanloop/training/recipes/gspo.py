"""GSPO."""

from typing import TYPE_CHECKING, ClassVar

from .base import Default
from .choices import LossAggregation
from .grpo import Grpo

if TYPE_CHECKING:
    from torch import Tensor


class Gspo(Grpo):
    """GRPO with one importance ratio for each row (Zheng et al. 2025)."""

    name = "gspo"
    title = "GSPO"
    verl_loss = "gspo"
    defaults: ClassVar = {
        "loss_aggregation": Default(LossAggregation.SEQ_MEAN_TOKEN_MEAN, "Zheng et al. 2025, equation 5"),
        "clip_ratio_low": Default(3e-4, "of a row's ratio: Zheng et al. 2025, section 5.1"),
        "clip_ratio_high": Default(4e-4, "of a row's ratio: Zheng et al. 2025, section 5.1"),
        "kl_coefficient": Default(0.0, "the formulas of Zheng et al. 2025 have no such term"),
    }

    def importance_weights(self, log_ratio: "Tensor", mask: "Tensor") -> "Tensor":
        """Return one truncated weight for all tokens of a row, ``exp(mean over trained tokens of log_ratio)``.

        The length-normalised ratio of a sequence (Zheng et al. 2025, equation 7), here of the policy to the sampler.
        """
        tokens = mask.sum(-1, keepdim=True).clamp(min=1)
        mean = (log_ratio * mask).sum(-1, keepdim=True) / tokens
        return super().importance_weights(mean, mask).expand_as(log_ratio)
