"""The sampling parameters of a row, as far as importance ratios depend on them.

Invariant: a row has a temperature only when every step was sampled at it. The gateway's log-probabilities are of the
distribution that was sampled from. verl recomputes them at one temperature over the whole vocabulary, and cannot
recompute other changes of the distribution (truncation, penalties, forced formats).
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from spanloop.foundation.sampling import TEMPERATURE, constraining

DEFAULT_TEMPERATURE: Final = 1.0
"""The API's default temperature."""
_GREEDY_BELOW: Final = 0.01
"""vLLM samples greedily below this temperature."""
_DIGITS: Final = 4
"""Digits of a temperature; further digits are rounding errors from spans."""


class Sampling(NamedTuple):
    """Sampling of one step, or of all steps of a row."""

    temperature: float | None
    """0 for greedy; None when it is invalid, or when the steps differ."""
    constrained_by: tuple[str, ...] = ()
    """Parameters other than the temperature that changed the distribution, sorted."""


def sampling_of(steps: Sequence[str]) -> Sampling:
    """Return how a row was sampled.

    Args:
        steps: ``transitions.sampling`` of the row's steps, each a JSON object of texts; none means all defaults.
    """
    samplings = [_of_step(step) for step in steps] or [Sampling(DEFAULT_TEMPERATURE)]
    temperatures = {sampling.temperature for sampling in samplings}
    return Sampling(
        temperature=temperatures.pop() if len(temperatures) == 1 else None,
        constrained_by=tuple(sorted({name for sampling in samplings for name in sampling.constrained_by})),
    )


@lru_cache(maxsize=4096)
def _of_step(step: str) -> Sampling:
    parameters: dict[str, str] = json.loads(step)
    return Sampling(_temperature(parameters.get(TEMPERATURE)), constraining(parameters))


def _temperature(text: str | None) -> float | None:
    if text is None:
        return DEFAULT_TEMPERATURE
    value = _number(text)
    if not math.isfinite(value) or value < 0:
        return None
    return 0.0 if value < _GREEDY_BELOW else round(value, _DIGITS)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
