"""The budget of a loop: tokens, hours and money, and what was spent of them.

Invariant: what would exceed a limit is not begun. What was never measured is expected to cost a token and a second, so
it begins only while something is left.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from pydantic import Field, model_validator

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings.section import Section

HOUR_S: Final = 3_600.0
_PRICED_TOKENS: Final = 1_000_000


class Budget(Section):
    """``[budget]``: what all rounds of the loop may cost together. A limit that is left out does not limit."""

    tokens: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens that the gateway answers while a step runs."""
    hours: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Hours of running steps."""
    money: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cost by the prices below, in their currency."""
    price_per_hour: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Price of an hour of running steps, such as that of the machine."""
    price_per_million_tokens: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Price of 1,000,000 tokens."""

    @property
    def limits_attempts(self) -> bool:
        """Whether an attempt can exceed it."""
        return any(limit is not None for limit in (self.tokens, self.hours, self.money))

    @model_validator(mode="after")
    def _has_prices(self) -> Self:
        if self.money is not None and not (self.price_per_hour or self.price_per_million_tokens):
            raise ValueError("money needs a price: set price_per_hour, price_per_million_tokens, or both")
        return self


class Spent(NamedTuple):
    """What was, or would be, spent."""

    tokens: int = 0
    seconds: float = 0.0

    def plus(self, tokens: float, seconds: float) -> "Spent":
        """Return the sum."""
        return Spent(self.tokens + round(tokens), self.seconds + seconds)

    def tokens_left(self, budget: Budget) -> int | None:
        """Return how many tokens may still be spent; None where no limit depends on them."""
        left = [] if budget.tokens is None else [budget.tokens - self.tokens]
        if budget.money is not None and budget.price_per_million_tokens:
            left.append(int((budget.money - self.money(budget)) * _PRICED_TOKENS / budget.price_per_million_tokens))
        return max(0, min(left)) if left else None

    def money(self, budget: Budget) -> float:
        """Return the cost by the budget's prices."""
        of_tokens = self.tokens * budget.price_per_million_tokens / _PRICED_TOKENS
        return of_tokens + self.seconds * budget.price_per_hour / HOUR_S


class BudgetSpentError(SpanloopError):
    """Raised before what would exceed the budget; what was done is stored."""


def exceeded(budget: Budget, spent: Spent, expected: Spent) -> str:
    """Return which limit would be exceeded by what is expected, with the figures; empty when none would."""
    return next(_exceeded(budget, spent, expected), "")


def _exceeded(budget: Budget, spent: Spent, expected: Spent) -> Iterator[str]:
    total = spent.plus(*expected)
    if budget.tokens is not None and expected.tokens and total.tokens > budget.tokens:
        yield f"{budget.tokens:,} tokens: {spent.tokens:,} are spent, and about {expected.tokens:,} would follow"
    hours, spent_hours = total.seconds / HOUR_S, spent.seconds / HOUR_S
    if budget.hours is not None and hours > budget.hours:
        after = expected.seconds / HOUR_S
        yield f"{budget.hours:g} hours: {spent_hours:.2f} are spent, and about {after:.2f} would follow"
    cost, spent_cost = total.money(budget), spent.money(budget)
    if budget.money is not None and cost > budget.money:
        after = expected.money(budget)
        yield f"{budget.money:g} in money: {spent_cost:.2f} is spent, and about {after:.2f} would follow"
