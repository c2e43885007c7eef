"""A recipe: CISPO, which bounds importance weights and keeps the gradient of every token."""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from spanloop.training.recipes.base import Default
from spanloop.training.recipes.choices import LossAggregation
from spanloop.training.recipes.grpo import Grpo
from spanloop.training.recipes.policy_gradient import PolicyBatch
from spanloop.training.recipes.setting import OPTIMISATION

if TYPE_CHECKING:
    from torch import Tensor


class Cispo(Grpo):
    """GRPO with clipped importance weights in place of a clipped objective (MiniMax-M1, arXiv 2506.13585)."""

    name = "cispo"
    title = "CISPO"
    defaults: ClassVar = {
        "loss_aggregation": Default(LossAggregation.TOKEN_MEAN, "MiniMax-M1, equation 4"),
        "kl_coefficient": Default(0.0, "MiniMax-M1, section 3.1"),
    }

    epsilon_high: Annotated[float, OPTIMISATION] = Field(default=4.0, gt=0, le=1e6, allow_inf_nan=False)
    """An importance weight is at most ``1 + epsilon_high``; there is no lower limit (MiniMax-M1, equation 5)."""

    def importance_weights(self, log_ratio: "Tensor", mask: "Tensor") -> "Tensor":
        """Return the weights as they are; :meth:`token_losses` clips their product with the ratio of the step."""
        del mask
        return log_ratio.exp()

    def token_losses(self, batch: PolicyBatch) -> "Tensor":
        """Return ``-clip(ratio to the sampler) · advantage · log-probability``, the ratio without a gradient."""
        ratio = (batch.policy - batch.start).detach().exp() * batch.weights
        return -ratio.clamp(max=1 + self.epsilon_high) * batch.advantages * batch.policy
