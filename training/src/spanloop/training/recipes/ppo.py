"""PPO."""

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from .base import Default
from .choices import Credit, LossAggregation
from .policy_gradient import Comparison, PolicyGradient
from .setting import OPTIMISATION

CRITIC_LEARNING_RATE: Final = 1e-5
"""verl's default; ten times the policy's, because the value head starts from zero."""
CLIP_RANGE_VALUE: Final = 0.5
"""verl's default."""
VALUE_COEFFICIENT: Final = 1.0
"""verl has none; Schulman et al. 2017 use 1 for Atari (table 5)."""


class Ppo(PolicyGradient):
    """Proximal policy optimisation with a learned value function (Schulman et al. 2017)."""

    name = "ppo"
    title = "PPO"
    comparison = Comparison.NONE
    needs_critic = True
    clip_ranges = (*PolicyGradient.clip_ranges, "cliprange_value")
    defaults: ClassVar = {"loss_aggregation": Default(LossAggregation.TOKEN_MEAN, "verl")}

    critic_learning_rate: Annotated[float, OPTIMISATION] = Field(
        default=CRITIC_LEARNING_RATE, gt=0, le=1, allow_inf_nan=False
    )
    """Peak learning rate of the critic, which starts from the base with a value head of zeros."""

    gae_lambda: Annotated[float, OPTIMISATION] = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """Decay of generalised advantage estimation (Schulman et al. 2016): 1 takes the episode's reward as each token's
    return, verl's default; less trusts the critic more. Rewards are not discounted."""

    cliprange_value: Annotated[float, OPTIMISATION] = Field(default=CLIP_RANGE_VALUE, gt=0, le=1e6, allow_inf_nan=False)
    """A value moves at most so far from that of the step's start before its loss stops rewarding it, in passes after
    the first; verl's default."""

    value_coefficient: Annotated[float, OPTIMISATION] = Field(
        default=VALUE_COEFFICIENT, gt=0, le=1e3, allow_inf_nan=False
    )
    """Weight of the value loss (c1 in Schulman et al. 2017, equation 9). The critic has weights of its own, and AdamW
    does not depend on the scale of gradients, so this decides from which error on ``clip_grad`` shortens its steps."""

    @model_validator(mode="after")
    def _compares_nothing(self) -> Self:
        if self.credit is Credit.ATTRIBUTED:
            raise ValueError(f"credit: attributed weighs stored advantages, which {self.kind} does not have")
        if self.credit is Credit.PROCESS_GRPO:
            raise ValueError(
                f"credit: process_grpo normalises scores by those of a group, which {self.kind} does not compare; take "
                "process"
            )
        return self
