"""REINFORCE++."""

from collections.abc import Sequence
from math import fsum, sqrt
from typing import ClassVar, Final

from .base import Default
from .choices import LossAggregation
from .policy_gradient import Comparison, StoredAdvantages

WHITENING_EPSILON: Final = 1e-8
"""Added to the variance by verl's ``masked_whiten``."""


class ReinforcePlusPlus(StoredAdvantages):
    """REINFORCE with rewards normalised over all groups (Hu et al. 2025)."""

    name = "reinforce_plus_plus"
    title = "REINFORCE++"
    comparison = Comparison.DATASET
    defaults: ClassVar = {"loss_aggregation": Default(LossAggregation.TOKEN_MEAN, "verl")}

    def advantages(self, rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
        """Return the rewards, normalised over all tokens of the dataset.

        The paper normalises over a batch; here it is the whole dataset, so that an advantage does not depend on how
        batches are cut.
        """
        return normalised_rewards(rewards, tokens)

    def deviation(self, variance: float) -> float:
        """Return ``sqrt(variance + 1e-8)``."""
        return sqrt(variance + WHITENING_EPSILON)


def normalised_rewards(rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
    """Return ``(R_i - m) / sqrt(v + 1e-8)``, with mean ``m`` and unbiased variance ``v`` over all tokens.

    REINFORCE++ (Hu et al. 2025, https://arxiv.org/abs/2501.03262) with the numbers of verl's ``masked_whiten``.

    Args:
        rewards: Of each episode, which all of its tokens have.
        tokens: The number of trained tokens of each episode.
    """
    count = sum(tokens)
    if count < 2:
        return [0.0] * len(rewards)
    pairs = list(zip(rewards, tokens, strict=True))
    mean = fsum(reward * number for reward, number in pairs) / count
    variance = fsum(number * (reward - mean) ** 2 for reward, number in pairs) / (count - 1)
    return [(reward - mean) / sqrt(variance + WHITENING_EPSILON) for reward in rewards]
