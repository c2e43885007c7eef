"""``[prices]``: what tokens cost, by model and date.

Invariant: a model without a matching price has no price; it is never zero.
"""

from datetime import date
from fnmatch import fnmatchcase
from typing import Self

from pydantic import Field, model_validator

from .section import Section


class Price(Section):
    """``[[prices.models]]``: the price of a model's tokens from a date on."""

    model: str = Field(min_length=1)
    """The model's name as spans record it; ``*`` matches any characters, ``?`` one. The first entry that matches wins;
    of entries with an equal pattern the newest that has begun."""
    since: date = date(1970, 1, 1)
    """The first day of the price, UTC. Left out: from the beginning."""
    input: float = Field(ge=0, allow_inf_nan=False)
    """The price of 1,000,000 input tokens."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The price of 1,000,000 input tokens that the provider read from its cache; left out: that of ``input``."""
    output: float = Field(ge=0, allow_inf_nan=False)
    """The price of 1,000,000 output tokens."""

    def cost(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> float:
        """Return what tokens cost; ``cached_tokens`` are among the input tokens."""
        cached_tokens = min(cached_tokens, input_tokens)
        cached = self.input if self.cached is None else self.cached
        return (
            (input_tokens - cached_tokens) * self.input + cached_tokens * cached + output_tokens * self.output
        ) / 1_000_000


class Prices(Section):
    """``[prices]``: the dated price table, in one currency."""

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """The currency of all prices, three capital letters such as ``USD`` or ``EUR``."""
    models: tuple[Price, ...] = ()
    """The prices. Without one no cost is shown."""

    @model_validator(mode="after")
    def _has_no_price_twice(self) -> Self:
        seen: set[tuple[str, date]] = set()
        for price in self.models:
            if (price.model, price.since) in seen:
                raise ValueError(f"two prices of {price.model!r} begin on {price.since}; leave one out")
            seen.add((price.model, price.since))
        return self

    def find(self, model: str, day: date) -> Price | None:
        """Return the price of a model on a day, None where there is none."""
        pattern = next(
            (each.model for each in self.models if each.since <= day and fnmatchcase(model, each.model)), None
        )
        begun = [each for each in self.models if each.model == pattern and each.since <= day]
        return max(begun, key=lambda each: each.since, default=None)

    @property
    def days(self) -> tuple[date, ...]:
        """The days on which a price begins, in order."""
        return tuple(sorted({price.since for price in self.models}))
