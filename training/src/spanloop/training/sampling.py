"""How a row's tokens were sampled, as far as importance ratios depend on it.

The invariant: a temperature is given only when every step of the row was sampled at it. The gateway's logprobs are
those of the distribution that was really sampled from; verl recomputes them at one temperature over the whole
vocabulary. Whatever else bends the distribution (truncation, penalties, forced formats) it cannot recompute.
"""

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

DEFAULT_TEMPERATURE: Final = 1.0
"""Of the API, for a request that names none."""
_GREEDY_BELOW: Final = 0.01
"""vLLM samples greedily at 0 and at nothing between that and this."""
_DIGITS: Final = 4
"""Of a temperature; more are what became of it on its way through spans."""
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
    """What the ratios of one step, or of all steps of a row, depend on."""

    temperature: float | None
    """0 for greedy; None when it is no temperature, or when the steps have several."""
    is_truncated: bool
    """Something besides the temperature is_truncating the distribution."""


def sampling_of(steps: Sequence[str]) -> Sampling:
    """How a row was sampled.

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
