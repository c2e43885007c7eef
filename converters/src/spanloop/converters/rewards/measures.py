"""Rewards for how cheaply and how fast an attempt got there."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from spanloop.foundation.errors import ConfigurationError

from .attempt import Attempt, Judgement, Reward


class Latency(Reward):
    """``min(1, seconds / taken)``: 1 within the time allowed, a half at twice the time.

    Raises:
        ConfigurationError: When ``seconds`` is not above 0.
    """

    seconds: float = 30.0
    """Time allowed."""

    def model_post_init(self, context: Any, /) -> None:
        """Check the options."""
        del context
        _check("seconds", self.seconds)

    def __call__(self, attempt: Attempt) -> float:
        """Return the reward of one attempt."""
        return share_of_budget(self.seconds, attempt.duration_s)


class Price(NamedTuple):
    """Price of a million tokens, in any one currency."""

    input: float
    output: float


class Cost(Reward):
    """``min(1, budget / cost)``, where the cost is that of all model calls by token counts and prices.

    Raises:
        ConfigurationError: When ``budget`` is not above 0.
    """

    prices: Mapping[str, Price]
    """Model name → price; a name without its ``@version`` does for all versions. No reward where one is missing."""
    budget: float
    """Cost allowed, in the currency of the prices."""

    def model_post_init(self, context: Any, /) -> None:
        """Check the options."""
        del context
        _check("budget", self.budget)

    def __call__(self, attempt: Attempt) -> Judgement | None:
        """The reward of one attempt; None where a price or all token counts are missing."""
        cost = tokens = 0.0
        for step in attempt.episode.steps:
            price = self.prices.get(step.model) or self.prices.get(step.model.partition("@")[0])
            if price is None:
                return None
            cost += (step.span.input_tokens * price.input + step.span.output_tokens * price.output) / 1e6
            tokens += step.span.input_tokens + step.span.output_tokens
        if not tokens:
            return None
        return Judgement(share_of_budget(self.budget, cost), {})


def share_of_budget(allowed: float, taken: float) -> float:
    """Return ``min(1, allowed / taken)``, in one unit: 1 within the budget, a half at twice the budget."""
    return min(1.0, allowed / taken) if taken > 0 else 1.0


def _check(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise ConfigurationError(
            f"{name} of a reward is {value!r}, expected a number above 0.", next_step=f"Give {name} in its unit."
        )
