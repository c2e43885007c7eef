"""How long steps will take, by the steps that were measured before.

Invariant: an estimate is a measurement of the same loop, scaled where the number of attempts is known; without a
measurement there is none.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from .rounds import STEPS, LoopRound, StepName

_SKIPPED_S = 2.0
"""A measurement of the champion that took less found its attempts done."""


class Estimates(NamedTuple):
    """Expected seconds and tokens of steps."""

    rounds: Sequence[LoopRound]
    """All rounds of the loop, oldest first."""
    collect_ratio: float
    """Attempts of a collection by those of an evaluation."""
    assumed_s: Mapping[StepName, float]
    """Seconds of steps that were never measured, from elsewhere."""

    def seconds(self, name: StepName) -> float | None:
        """Return the expected duration of a step; None when nothing like it was measured."""
        if name is StepName.MEASURE and len(self.rounds) > 1:
            return _SKIPPED_S  # the champion was measured as the candidate of the round before
        measured = self._measured(name, "seconds") or self._similar(name, "seconds")
        return measured or (self.assumed_s[name] * self._slowness() if name in self.assumed_s else None)

    def tokens(self, name: StepName) -> float:
        """Return the expected tokens of a step; 0 when nothing like it was measured."""
        return self._measured(name, "tokens") or self._similar(name, "tokens") or 0.0

    def rest_s(self, after: StepName, further_rounds: int) -> float | None:
        """Return the expected duration of what follows a step of a round; None while a part of it is unknown."""
        later = STEPS[STEPS.index(after) + 1 :]
        # a champion is measured once: as the candidate of the round before
        in_each = [name for name in STEPS if name is not StepName.MEASURE]
        expected = [self.seconds(name) for name in (*later, *in_each * further_rounds)]
        return None if None in expected else sum(each for each in expected if each is not None)

    def _slowness(self) -> float:
        """Return how much longer this machine takes than that of the assumed durations."""
        ratios = [
            measured / assumed
            for name, assumed in self.assumed_s.items()
            if name is not StepName.DECIDE and (measured := self._measured(name, "seconds"))
        ]
        return median(ratios) if ratios else 1.0

    def _measured(self, name: StepName, part: str) -> float | None:
        steps = [step for number in self.rounds for step in number.steps if step.name is name and step.is_finished]
        values = [
            float(getattr(step, part)) for step in steps if name is not StepName.MEASURE or step.seconds > _SKIPPED_S
        ]
        return median(values) if values else None

    def _similar(self, name: StepName, part: str) -> float | None:
        """Return the measurement of a step of the same kind."""
        if name is StepName.DECIDE:
            return 10.0 if part == "seconds" else 0.0
        if name in {StepName.TEST, StepName.COLLECT}:
            measured = self._measured(StepName.MEASURE, part) or self._measured(StepName.TEST, part)
            ratio = self.collect_ratio if name is StepName.COLLECT else 1.0
            return None if measured is None else measured * ratio
        return None
