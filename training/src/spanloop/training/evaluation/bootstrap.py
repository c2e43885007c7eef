"""The percentile bootstrap of a mean over tasks (Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13).

Tasks are resampled, with all of their attempts, because attempts at one task are not independent. So each task is one
value, the mean of its attempts.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

LEVEL: Final = 0.95
"""Confidence level: the share of the resampled means inside an interval."""
RESAMPLES: Final = 10_000
_MAX_INDICES: Final = 4_000_000
"""Maximum number of resampled indices in memory: 32 MB."""


class Interval(NamedTuple):
    """A mean and its bootstrap confidence interval."""

    value: float
    low: float
    high: float
    """Equal to ``low`` and ``value`` if all tasks have the same value or there is only one; this is no certainty."""

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is significant: the interval excludes zero."""
        return self.low > 0 or self.high < 0


def bootstrap_mean(values: Sequence[float], *, seed: int) -> Interval:
    """Return the mean of ``values`` (one for each task, at least one) and its interval; deterministic for a seed."""
    tasks = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    rows = max(1, _MAX_INDICES // tasks.size)
    means = np.concatenate(
        [
            tasks[generator.integers(tasks.size, size=(min(rows, RESAMPLES - start), tasks.size))].mean(axis=1)
            for start in range(0, RESAMPLES, rows)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(tasks.mean()), float(low), float(high))
