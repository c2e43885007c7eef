"""Watch the metrics of a training and its progress, and say when going on cannot help.

Invariant: a watchdog sees numbers and times only; it reads no clock and ends nothing itself. A false alarm costs a user
a job, so each one waits for what a healthy job does not show, and can be turned off where a job may want it.
"""

import math
import statistics
from typing import Final, NamedTuple

from ...verl_plugin.drift import last_step_within
from ...verl_plugin.early_stopping import EarlyStop
from .metrics import StepMetrics

ENTROPY: Final = "actor/entropy"
_ADVANTAGES: Final = ("critic/advantages/min", "critic/advantages/max")
_FIRST_STEPS: Final = 3
"""The entropy of a job's first steps is their median over so many."""
_LOW_STEPS: Final = 3
"""Consecutive steps of low entropy; one batch of easy prompts is no collapse."""
_LEAST_ENTROPY: Final = 0.05
"""Nats a token. A job that starts below is not watched: its policy is nearly deterministic already, and the entropy of
a batch depends more on the batch than on the policy."""
_FLAT: Final = 1e-8
"""Advantages closer together than this are equal."""
_LONGEST_STEPS: Final = 10
"""A step may take so many times as long as the longest one before it, whatever ``stall_minutes`` says."""


class Thresholds(NamedTuple):
    """What the watchdogs wait for; 0 turns one off. The defaults of the settings are in ``JobSpec``."""

    entropy_share: float
    """Of the entropy of the first steps."""
    flat_batches: int
    """Consecutive batches whose advantages are all equal."""
    stall_minutes: float


class Watchdogs:
    """The watchdogs of one attempt.

    Args:
        thresholds: The settings.
        learning_rate: Of the job, for the advice.
    """

    def __init__(self, thresholds: Thresholds, *, learning_rate: float) -> None:
        self._thresholds = thresholds
        self._learning_rate = learning_rate
        self._first_entropies: list[float] = []
        self._low_since: int | None = None
        self._low_steps = 0
        self._flat_batches = 0
        self._progress_s: float | None = None
        self._longest_step_s = 0.0
        self._last_step = 0

    def see(self, step: StepMetrics, now_s: float | None = None) -> EarlyStop | None:
        """Look at the next step.

        Args:
            step: Its metrics; of earlier attempts too, in order.
            now_s: A monotonic clock when the step was logged; None for steps of earlier attempts.
        """
        if now_s is not None:
            if self._progress_s is not None:
                self._longest_step_s = max(self._longest_step_s, now_s - self._progress_s)
            self._progress_s = now_s
        self._last_step = step.step
        return self._diverged(step) or self._collapsed(step) or self._flat(step)

    def see_time(self, now_s: float) -> EarlyStop | None:
        """Look at the clock while no step is logged; the first call starts it."""
        if self._progress_s is None:
            self._progress_s = now_s
        waited_s = now_s - self._progress_s
        limit_s = max(60 * self._thresholds.stall_minutes, _LONGEST_STEPS * self._longest_step_s)
        if not self._thresholds.stall_minutes or waited_s <= limit_s:
            return None
        return EarlyStop(
            "stall_minutes",
            f"no step was completed for {waited_s / 60:.0f} minutes after step {self._last_step}; expected one within "
            f"{limit_s / 60:.0f}.",
            "Look at the end of the job's log and at the machine; raise stall_minutes if a step may take so long.",
            last_step=self._last_step,
            takes_newest=True,
        )

    def _diverged(self, step: StepMetrics) -> EarlyStop | None:
        if not step.diverged:
            return None
        return EarlyStop(
            "diverged",
            f"{step.diverged} is {step.values[step.diverged]} at step {step.step}; training has diverged.",
            f"Submit it again with a smaller learning_rate (it was {self._learning_rate:g}).",
            last_step=last_step_within(step.step),
        )

    def _collapsed(self, step: StepMetrics) -> EarlyStop | None:
        entropy = step.values.get(ENTROPY, math.nan)
        if not self._thresholds.entropy_share or not math.isfinite(entropy):
            return None
        if len(self._first_entropies) < _FIRST_STEPS:
            self._first_entropies.append(entropy)
            return None
        first = statistics.median(self._first_entropies)
        if first < _LEAST_ENTROPY or entropy >= self._thresholds.entropy_share * first:
            self._low_since, self._low_steps = None, 0
            return None
        if self._low_since is None:
            self._low_since = step.step
        self._low_steps += 1
        if self._low_steps < _LOW_STEPS:
            return None
        return EarlyStop(
            "min_entropy_share",
            f"the policy's entropy collapsed: {entropy:.3g} nats a token at step {step.step}, below "
            f"{self._thresholds.entropy_share:g} of the {first:.3g} of the first steps since step {self._low_since}.",
            f"Take a smaller learning_rate (it was {self._learning_rate:g}) or fewer steps, or lower "
            "min_entropy_share.",
            last_step=last_step_within(self._low_since),
            takes_newest=True,
        )

    def _flat(self, step: StepMetrics) -> EarlyStop | None:
        low, high = (step.values.get(name, math.nan) for name in _ADVANTAGES)
        if not self._thresholds.flat_batches or not high - low <= _FLAT:
            self._flat_batches = 0
            return None
        self._flat_batches += 1
        if self._flat_batches < self._thresholds.flat_batches:
            return None
        return EarlyStop(
            "max_flat_batches",
            f"the advantages of {self._flat_batches} batches until step {step.step} do not vary (all {high:.3g}), so "
            "nothing is preferred to anything.",
            "Collect episodes whose reward varies within a task, or a reward that tells good from bad; credit = "
            "broadcast masks no step.",
            last_step=step.step,
            takes_newest=True,
        )
