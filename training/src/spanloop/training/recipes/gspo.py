"""GSPO."""

from typing import TYPE_CHECKING, ClassVar, Final

from .base import Default
from .choices import LossAggregation
from .grpo import Grpo

if TYPE_CHECKING:
    from torch import Tensor

GSPO_CLIP: Final = (3e-4, 4e-4)
"""Lower and upper clip range of a row's ratio (Zheng et al. 2025, section 5.1)."""


class Gspo(Grpo):
    """GRPO with one importance ratio for each row (Zheng et al. 2025)."""

    name = "gspo"
    title = "GSPO"
    verl_loss = "gspo"
    clip_range = GSPO_CLIP
    defaults: ClassVar = {
        "loss_aggregation": Default(LossAggregation.SEQ_MEAN_TOKEN_MEAN, "Zheng et al. 2025, equation 5"),
        "kl_coefficient": Default(0.0, "the formulas of Zheng et al. 2025 have no such term"),
    }

    def importance_weights(self, log_ratio: "Tensor", mask: "Tensor") -> "Tensor":
        """Return one truncated weight for all tokens of a row, ``exp(mean over trained tokens of log_ratio)``.

        The length-normalised ratio of a sequence (Zheng et al. 2025, equation 7), here of the policy to the sampler.
        """
        tokens = mask.sum(-1, keepdim=True).clamp(min=1)
        mean = (log_ratio * mask).sum(-1, keepdim=True) / tokens
        return super().importance_weights(mean, mask).expand_as(log_ratio)
