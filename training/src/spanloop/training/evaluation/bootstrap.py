"""The percentile bootstrap of a mean over tasks (Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13).

What is resampled is the task, with all of its attempts: attempts at one task are not independent of each other. So a
task enters as one number, the mean of its attempts.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

LEVEL: Final = 0.95
"""Share of the resampled means that an interval holds."""
RESAMPLES: Final = 10_000
_DRAWN_AT_ONCE: Final = 4_000_000
"""Indices in memory at a time: 32 MB."""


class Interval(NamedTuple):
    """A mean and the interval of its bootstrap."""

    value: float
    low: float
    high: float
    """Equal to ``low`` and ``value`` when all tasks are alike, or there is but one: that is not certainty."""

    @property
    def excludes_zero(self) -> bool:
        """Of a difference: whether its sign is beyond the interval's doubt."""
        return self.low > 0 or self.high < 0


def bootstrap_mean(values: Sequence[float], *, seed: int) -> Interval:
    """The mean of ``values`` (one for each task, at least one) and its interval; the same for the same seed."""
    tasks = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(seed)
    rows = max(1, _DRAWN_AT_ONCE // tasks.size)
    means = np.concatenate(
        [
            tasks[generator.integers(tasks.size, size=(min(rows, RESAMPLES - start), tasks.size))].mean(axis=1)
            for start in range(0, RESAMPLES, rows)
        ]
    )
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(tasks.mean()), float(low), float(high))
