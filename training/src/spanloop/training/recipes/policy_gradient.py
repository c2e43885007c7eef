"""The base classes of policy gradients: rewards become advantages, and log-probabilities a loss.

Advantages are computed once, when the dataset is exported. The loss corrects for the difference between the policy that
sampled a row and the policy at the start of a step by importance weights, so rows of an older policy stay usable.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import Field, model_validator

from .base import Default, LearnsFrom, Recipe
from .choices import Credit, LossAggregation
from .setting import EPISODES, OPTIMISATION

if TYPE_CHECKING:
    from torch import Tensor

TRUNCATE_WEIGHTS_AT: Final = 2.0
"""Upper limit of importance weights (truncated importance sampling)."""
DEVIATION_EPSILON: Final = 1e-6
"""Added to the standard deviation of a group by ``group_advantages``."""
CLIP_RATIO: Final = 0.2
"""Schulman et al. 2017, table 1, and verl's default."""
KL_BUDGET: Final = 0.1
"""Log-normal importance weights with a KL of 0.1 keep exp(-0.2) = 82 % of the effective sample size; at verl's
truncation of 2 few of them are cut."""
MIN_ENTROPY_SHARE: Final = 0.05
"""Successful runs fall to 27 % of their first entropy in two hundred steps (Cui et al. 2025, "The Entropy Mechanism of
Reinforcement Learning for Reasoning Language Models", section 2); a fifth of that is no longer exploration."""
MAX_FLAT_BATCHES: Final = 5
"""Groups without variance are rejected at the export, so one flat batch is rare and five in a row are the data."""


class Comparison(StrEnum):
    """The episodes that an episode is compared with."""

    GROUP = "group"
    """Those of its group."""
    DATASET = "dataset"
    """All that the job can train on."""
    NONE = "none"
    """None: the critic estimates what to expect."""


class PolicyBatch(NamedTuple):
    """A batch as the loss of a policy gradient has it; all tensors have the shape (rows, response tokens)."""

    policy: "Tensor"
    """Log-probabilities of the policy, with a gradient."""
    start: "Tensor"
    """Log-probabilities of the policy at the start of the step. With one pass over a batch these are ``policy``
    without its gradient."""
    weights: "Tensor"
    """:meth:`PolicyGradient.importance_weights` of ``start`` to the sampler, without a gradient."""
    advantages: "Tensor"
    mask: "Tensor"
    """1 at trained tokens."""


class PolicyGradient(Recipe):
    """Learns from the advantages of sampled tokens."""

    learns_from: ClassVar[LearnsFrom] = LearnsFrom.ROWS
    comparison: ClassVar[Comparison]
    leaves_one_out: ClassVar[bool] = False
    """With the credit ``process``: whether the baseline of a model call leaves out the call's own episode."""
    verl_loss: ClassVar[str] = "vanilla"
    """verl's loss for several passes over a batch; empty where :meth:`token_losses` computes it. A class that states
    ``token_losses`` and no ``verl_loss`` has the empty one. A single pass always has :meth:`token_losses`."""
    clip_ranges: ClassVar[tuple[str, ...]] = ("clip_ratio_low", "clip_ratio_high")
    """Settings that have no effect with one pass over a batch."""
    defaults: ClassVar = {
        "learning_rate": Default(1e-6, "DeepSeekMath (Shao et al. 2024, section 4.2) and verl"),
        "max_age_versions": Default(8, "verl's sampler.max_off_policy_threshold"),
    }

    group_size: Annotated[int, OPTIMISATION] = Field(default=8, ge=2, le=1024)
    """At most this many episodes of a group in a batch. A group needs two for a relative advantage."""

    kl_budget: Annotated[float | None, OPTIMISATION] = Field(default=KL_BUDGET, gt=0, allow_inf_nan=False)
    """The job ends at its last checkpoint within this mean KL divergence, in nats a token, of the policy from the one
    that sampled the rows. It is measured on each batch before its update, so not after the last one."""

    kl_coefficient: Annotated[float, OPTIMISATION] = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    """Weight of a loss term for the KL divergence to the base (verl's ``use_kl_loss``, k3); above zero a second copy of
    the weights is kept. DAPO (Yu et al. 2025) and Dr. GRPO leave it out; DeepSeekMath (Shao et al. 2024) uses 0.04."""

    epochs: Annotated[int, OPTIMISATION] = Field(default=1, ge=1, le=64)
    """Passes over each batch (PPO epochs). With more than one, the later passes are off-policy."""

    clip_ratio_low: Annotated[float, OPTIMISATION] = Field(default=CLIP_RATIO, gt=0, lt=1, allow_inf_nan=False)
    """A probability ratio below 1 minus this is clipped (Schulman et al. 2017, equation 7), in passes after the first;
    verl's default, for gspo that of Zheng et al. 2025, section 5.1. With one pass no ratio differs from 1."""

    clip_ratio_high: Annotated[float, OPTIMISATION] = Field(default=CLIP_RATIO, gt=0, le=100, allow_inf_nan=False)
    """A probability ratio above 1 plus this is clipped; DAPO (Yu et al. 2025, section 3.1) takes 0.28."""

    credit: Annotated[Credit, OPTIMISATION] = Credit.BROADCAST
    """``broadcast`` gives every step its episode's advantage. ``attributed`` charges a bad episode to the steps of the
    policy's own mistakes, does not reinforce such steps in a good one, and leaves out what a tool, the environment or
    the harness broke. ``process`` gives each model call what follows it: its own score, those of later calls and the
    episode's reward, minus the mean of the compared episodes at the same call number. ``process_grpo`` is its older
    form (Shao et al. 2024), which favours shorter episodes where scores are positive on average, and longer ones where
    they are negative. ppo has ``broadcast`` and ``process``."""

    loss_aggregation: Annotated[LossAggregation, OPTIMISATION] = LossAggregation.TOKEN_MEAN
    """How the losses of a batch's tokens become one number, by verl's names. ``seq-mean-token-sum-norm`` divides the
    sum of each row by the longest response of the job and takes the mean over rows: neither the length of a row nor
    that of its neighbours changes the weight of a token (Dr. GRPO, Liu et al. 2025, section 3.2). With ``token-mean``
    long rows shrink the weight of all others; with ``seq-mean-token-mean`` a token of a long row weighs less."""

    min_entropy_share: Annotated[float, OPTIMISATION] = Field(
        default=MIN_ENTROPY_SHARE, ge=0, lt=1, allow_inf_nan=False
    )
    """The job ends when the policy's entropy stays below this share of that of its first steps; 0 turns it off."""

    max_flat_batches: Annotated[int, OPTIMISATION] = Field(default=MAX_FLAT_BATCHES, ge=0, le=1_000_000)
    """The job ends after so many batches in a row whose advantages do not vary, which teach nothing; 0 turns it off."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "token_losses" in vars(cls) and "verl_loss" not in vars(cls):
            cls.verl_loss = ""

    @model_validator(mode="after")
    def _clips_something(self) -> Self:
        for name in self.clip_ranges:
            if self.epochs == 1 and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name}: one pass over a batch clips nothing; it needs epochs above 1")
        return self

    @property
    def needs_reference(self) -> bool:
        """Whether the loss has a KL term to the base."""
        return self.kl_coefficient > 0

    def advantages(self, rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
        """Return the advantages of episodes that are compared; not called without a comparison.

        Args:
            rewards: Of the episodes; with ``process_grpo`` the scores of single model calls.
            tokens: The number of trained tokens of each episode; 1 for each call.
        """
        raise NotImplementedError(f"{type(self).__name__} compares episodes and states no advantages")

    def deviation(self, variance: float) -> float:
        """Return the divisor of the advantages of model calls, with the credit ``process``.

        Args:
            variance: Of the returns around their baselines, over all calls that are compared.
        """
        del variance
        return 1.0

    def importance_weights(self, log_ratio: "Tensor", mask: "Tensor") -> "Tensor":
        """Return the weight of each token (rows, tokens), which corrects for the sampler.

        Args:
            log_ratio: Of the policy at the start of the step to the sampler, without a gradient.
            mask: 1 at trained tokens.
        """
        del mask
        return log_ratio.exp().clamp(max=TRUNCATE_WEIGHTS_AT)

    def token_losses(self, batch: PolicyBatch) -> "Tensor":
        """Return the loss of each token (rows, tokens), to be minimised; ``loss_aggregation`` makes one number of them.

        In a single pass the ratio to the start of the step is 1 and is never clipped: every clipped objective has this
        loss and this gradient.
        """
        ratio = (batch.policy - batch.start).exp()
        return -batch.weights * batch.advantages * ratio


class StoredAdvantages(PolicyGradient):
    """Has an advantage for each token of the dataset, from a comparison of episodes."""

    gamma: Annotated[float, OPTIMISATION] = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """Discount of each later model call, with the credits ``process`` and ``attributed``: 1 counts a later score as
    much as an earlier one. ``attributed`` compares episodes by ``gamma^(calls - 1)`` times their reward."""

    @model_validator(mode="after")
    def _discounts_calls(self) -> Self:
        if self.gamma != 1 and self.credit not in {Credit.PROCESS, Credit.ATTRIBUTED}:
            raise ValueError(f"gamma: a setting of the credits process and attributed; {self.credit} discounts nothing")
        return self


class GroupRelative(StoredAdvantages):
    """Compares the episodes of a group."""

    comparison: ClassVar[Comparison] = Comparison.GROUP

    repeats_per_task: Annotated[int, EPISODES] = Field(default=2, ge=2, le=100_000)
    """Only groups with at least so many episodes that can be trained on; the others wait for more attempts at their
    task. Two are needed for a comparison."""
