"""Compare log-probabilities of the same tokens from two computations: trainer and engine, or before and after a swap.

At the same weights both agree up to rounding; a larger difference means other weights, another temperature, or other
tokens.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

TOLERANCE: Final = 0.05
"""Mean absolute difference, in nats, that rounding explains: both engines may compute in bfloat16, whose eight bits of
mantissa give a logit of 20 a rounding error of up to 0.06."""


class LogprobAgreement(NamedTuple):
    """Absolute differences between two lists of log-probabilities, in nats; NaN without a token."""

    tokens: int
    """Number of compared tokens."""
    mean: float
    median: float
    p99: float
    largest: float

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the differences: the mean is within `TOLERANCE`."""
        return self.mean <= TOLERANCE


def agreement(one: Sequence[float], other: Sequence[float]) -> LogprobAgreement:
    """Compare log-probabilities that run parallel.

    Raises:
        ValueError: Their numbers differ.
    """
    gaps = sorted(abs(a - b) for a, b in zip(one, other, strict=True))
    if not gaps:
        return LogprobAgreement(0, *[float("nan")] * 4)
    return LogprobAgreement(len(gaps), sum(gaps) / len(gaps), _quantile(gaps, 0.5), _quantile(gaps, 0.99), gaps[-1])


def _quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated linearly."""
    position = share * (len(values) - 1)
    below = int(position)
    above = min(below + 1, len(values) - 1)
    return values[below] + (position - below) * (values[above] - values[below])
