"""The sampling parameters of a row, as far as importance ratios depend on them.

Invariant: a row has a temperature only when every step was sampled at it. The gateway's log-probabilities are of the
distribution that was sampled from. verl recomputes them at one temperature over the whole vocabulary, and cannot
recompute other changes of the distribution (truncation, penalties, forced formats).
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

DEFAULT_TEMPERATURE: Final = 1.0
"""The API's default temperature."""
_GREEDY_BELOW: Final = 0.01
"""vLLM samples greedily below this temperature."""
_DIGITS: Final = 4
"""Digits of a temperature; further digits are rounding errors from spans."""
_NEUTRAL_NUMBERS: Final[Mapping[str, frozenset[float]]] = {
    "top_p": frozenset({1.0}),
    "top_k": frozenset({0.0, -1.0}),
    "min_p": frozenset({0.0}),
    "frequency_penalty": frozenset({0.0}),
    "presence_penalty": frozenset({0.0}),
    "repetition_penalty": frozenset({1.0}),
    "min_tokens": frozenset({0.0}),
}
_NEUTRAL_TEXTS: Final[Mapping[str, frozenset[str]]] = {
    "logit_bias": frozenset({"{}"}),
    "bad_words": frozenset({"[]"}),
    "allowed_token_ids": frozenset(),
    "response_format": frozenset({'{"type": "text"}'}),
    "structured_outputs": frozenset({"{}"}),
    "tool_choice": frozenset({"auto", "none"}),
}


class Sampling(NamedTuple):
    """Sampling of one step, or of all steps of a row."""

    temperature: float | None
    """0 for greedy; None when it is invalid, or when the steps differ."""
    is_truncated: bool
    """A parameter other than the temperature changed the distribution."""


def sampling_of(steps: Sequence[str]) -> Sampling:
    """Return how a row was sampled.

    Args:
        steps: ``transitions.sampling`` of the row's steps, sampling a JSON object of texts; none means all defaults.
    """
    samplings = [_of_step(step) for step in steps] or [Sampling(DEFAULT_TEMPERATURE, is_truncated=False)]
    temperatures = {sampling.temperature for sampling in samplings}
    return Sampling(
        temperature=temperatures.pop() if len(temperatures) == 1 else None,
        is_truncated=any(sampling.is_truncated for sampling in samplings),
    )


@lru_cache(maxsize=4096)
def _of_step(step: str) -> Sampling:
    parameters: dict[str, str] = json.loads(step)
    is_truncating = (
        _number(text) not in _NEUTRAL_NUMBERS[name] if name in _NEUTRAL_NUMBERS else text not in _NEUTRAL_TEXTS[name]
        for name, text in parameters.items()
        if name in _NEUTRAL_NUMBERS or name in _NEUTRAL_TEXTS
    )
    return Sampling(_temperature(parameters.get("temperature")), is_truncated=any(is_truncating))


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
