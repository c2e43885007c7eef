"""Rewards for how cheaply and how fast an attempt got there."""

from datetime import UTC, datetime
from typing import Any

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Prices

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


class Cost(Reward):
    """``min(1, budget / cost)``, where the cost is that of all model calls by token counts and prices.

    Raises:
        ConfigurationError: When ``budget`` is not above 0.
    """

    prices: Prices
    """A price table as ``[prices]`` of spanloop.toml; a model's name without its ``@version`` does for all versions. No
    reward where a price is missing."""
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
            span = step.span
            day = datetime.fromtimestamp(span.start_ns / 1e9, UTC).date()
            price = self.prices.find(step.model, day) or self.prices.find(step.model.partition("@")[0], day)
            if price is None:
                return None
            cost += price.cost(span.input_tokens, span.cached_tokens, span.output_tokens)
            tokens += span.input_tokens + span.output_tokens
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
