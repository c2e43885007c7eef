"""The percentile bootstrap of means over tasks (Efron and Tibshirani, An Introduction to the Bootstrap, ch. 13).

Tasks are resampled, with all of their attempts, because attempts at one task are not independent. So each task is one
value, the mean of its attempts.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

LEVEL: Final = 0.95
"""Confidence level: the share of the resampled means inside an interval."""
RESAMPLES: Final = 10_000
_MAX_INDICES: Final = 4_000_000
"""Maximum number of resampled indices in memory: 32 MB."""

Floats = npt.NDArray[np.float64]


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

    def text(self, form: str, *, scale: float = 1.0, unit: str = "") -> str:
        """Return the mean and its interval, such as ``34 % [28, 40]``.

        Args:
            form: Format of each number, such as ``.3g``; with a sign for a difference.
            scale: Factor of each number, such as 100 for a share in per cent.
            unit: Text after the mean, with its space.
        """
        value, low, high = (f"{scale * number:{form}}" for number in self)
        return f"{value}{unit} [{low}, {high}]"

    def range_text(self, form: str, *, scale: float = 1.0, unit: str = "") -> str:
        """Return the interval without the mean, such as ``28 % to 40 %``; the arguments are those of `text`."""
        return f"{scale * self.low:{form}}{unit} to {scale * self.high:{form}}{unit}"


def bootstrap_mean(values: Sequence[float], *, seed: int) -> Interval:
    """Return the mean of ``values`` (one for each task, at least one) and its interval; deterministic for a seed."""
    return bootstrap_means(np.asarray(values, dtype=np.float64)[:, None], seed=seed)[0]


def bootstrap_means(tasks: Floats, *, seed: int) -> list[Interval]:
    """Return the mean and the interval of each column; the same tasks are drawn for all columns.

    Args:
        tasks: A row for each task and a column for each figure; NaN where a task has no value, at least one value each.
        seed: The same seed draws the same tasks.
    """
    count, _ = tasks.shape
    has_value = ~np.isnan(tasks)
    values = np.where(has_value, tasks, 0.0)
    generator = np.random.default_rng(seed)
    rows = max(1, _MAX_INDICES // count)
    means: list[Floats] = []
    for start in range(0, RESAMPLES, rows):
        drawn = generator.integers(count, size=(min(rows, RESAMPLES - start), count))
        numbered = drawn + count * np.arange(len(drawn))[:, None]
        times = np.bincount(numbered.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a draw without any task that has the figure
            means.append((times @ values) / (times @ has_value))
    low, high = np.nanquantile(np.concatenate(means), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    value = values.sum(axis=0) / has_value.sum(axis=0)
    return [Interval(*map(float, ends)) for ends in zip(value, low, high, strict=True)]
