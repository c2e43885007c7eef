"""An anytime-valid test of a mean: looking at it often, and stopping because of what was seen, keeps its error level.

The test bets against "the mean difference is at most the margin". Each bet λ multiplies its capital by 1 + λ·x after a
difference d, where x = (d - margin) / (1 + margin); the e-value is the mean capital over bets with the density
12·λ·(1 - λ)² (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"; for paired
successes it is the beta mixture of Robbins 1970 over the discordant pairs).

Invariant: no bet can lose more than its capital, so while the mean is at most the margin the e-value is a
supermartingale that starts at 1. It exceeds 1 / alpha at any look with a probability of at most alpha (Ville's
inequality). A state has sums only: it can be stored after a look, and the next look continues from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

_NODES: Final = 64
"""Gauss-Legendre nodes. A sum over finitely many bets is a valid test by itself, however few they are."""
_LARGEST_BET: Final = 0.999
_BISECTIONS: Final = 24
"""The ends of an interval are exact to 2 ** -23."""

Floats = npt.NDArray[np.float64]


class _Bets(NamedTuple):
    sizes: Floats
    log_weights: Floats


@cache
def _bets() -> _Bets:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    sizes = (nodes + 1) / 2
    density = 12 * sizes * (1 - sizes) ** 2
    total = weights / 2 * density
    return _Bets(sizes, np.log(total / total.sum()))


@dataclass(frozen=True, slots=True)
class SequentialTest:
    """Evidence that the mean of differences in [-1, 1] is above a margin, after a number of them."""

    margin: float = 0.0
    """Above -1 and below 1."""
    count: int = 0
    """Differences seen."""
    total: float = 0.0
    """Sum of the differences seen."""
    log_capitals: tuple[float, ...] = (0.0,) * _NODES
    """Of each bet, before the weights of the mixture."""

    def __post_init__(self) -> None:
        if not -1 < self.margin < 1:
            raise ValueError(f"margin {self.margin}: expected a number between -1 and 1")

    def update(self, differences: Sequence[float], weights: Sequence[float] = ()) -> Self:
        """Return the state after further differences.

        Args:
            differences: Each in [-1, 1]. The test holds when no mean, given the differences before it, is above the
                margin.
            weights: Factor of the bet on each difference, such as its precision relative to others; known before the
                difference is. Without weights all are 1.

        Raises:
            ValueError: A difference is outside [-1, 1] or no number, or a weight is negative.
        """
        tally = _tally(differences, weights)
        return type(self)(
            self.margin,
            self.count + len(differences),
            self.total + math.fsum(differences),
            tuple((np.asarray(self.log_capitals) + _log_growth(tally, self.margin)).tolist()),
        )

    @property
    def mean(self) -> float:
        """Of the differences; 0 before the first."""
        return self.total / self.count if self.count else 0.0

    @property
    def log_e_value(self) -> float:
        """Natural logarithm of the e-value."""
        return _log_mixture(np.asarray(self.log_capitals))

    @property
    def e_value(self) -> float:
        """How many times the stake the bets have become; 1 before the first difference."""
        return math.exp(min(self.log_e_value, 700.0))

    def rejects(self, alpha: float) -> bool:
        """Whether the mean is above the margin, with an error probability of at most ``alpha`` over all looks."""
        return self.log_e_value >= -math.log(alpha)


class AnytimeInterval(NamedTuple):
    """A confidence interval that holds at all looks at once."""

    low: float
    high: float


def anytime_interval(
    differences: Sequence[float], weights: Sequence[float] = (), *, alpha: float = 0.05
) -> AnytimeInterval:
    """Return the margins that the two tests of level ``alpha / 2`` do not reject (a confidence sequence).

    Args:
        differences: Each in [-1, 1].
        weights: As in ``SequentialTest.update``.
        alpha: The interval misses the mean at any look with a probability of at most this.
    """
    tally = _tally(differences, weights)
    mirrored = tally._replace(values=-tally.values)
    return AnytimeInterval(_highest_rejected(tally, alpha / 2), -_highest_rejected(mirrored, alpha / 2))


class _Tally(NamedTuple):
    """Differences with their weights, equal ones together: single attempts make three of them."""

    values: Floats
    factors: Floats
    counts: Floats


def _tally(differences: Sequence[float], weights: Sequence[float]) -> _Tally:
    values = np.asarray(differences, dtype=np.float64)
    factors = np.asarray(weights, dtype=np.float64) if len(weights) else np.ones_like(values)
    if not np.all(np.abs(values) <= 1):
        raise ValueError(f"differences {values[~(np.abs(values) <= 1)]}: expected numbers from -1 to 1")
    if factors.shape != values.shape or not np.all(factors >= 0):
        raise ValueError(f"weights {factors}: expected one of at least 0 for each of {values.size} differences")
    distinct, counts = np.unique(np.stack([values, factors]), axis=1, return_counts=True)
    return _Tally(distinct[0], distinct[1], counts.astype(np.float64))


def _highest_rejected(tally: _Tally, alpha: float) -> float:
    """The e-value falls as the margin rises, so bisection finds where it passes 1 / alpha."""
    low, high = -1.0, 1.0
    for _ in range(_BISECTIONS):
        margin = (low + high) / 2
        if _log_mixture(_log_growth(tally, margin)) >= -math.log(alpha):
            low = margin
        else:
            high = margin
    return low


def _log_growth(tally: _Tally, margin: float) -> Floats:
    scaled = (tally.values - margin) / (1 + margin)
    bets = np.minimum(np.outer(tally.factors, _bets().sizes), _LARGEST_BET)
    growth: Floats = tally.counts @ np.log1p(bets * scaled[:, None])
    return growth


def _log_mixture(log_capitals: Floats) -> float:
    logs = log_capitals + _bets().log_weights
    highest = float(logs.max())
    return highest + math.log(float(np.exp(logs - highest).sum()))
