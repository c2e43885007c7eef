"""A language model that marks an attempt by a rubric, criterion by criterion.

The model is an injected callable, its answers are cached, and an answer that leaves a criterion out or marks it outside
0 to 1 is refused: better no reward than a made-up one. (On judging by rubric: Zheng et al., 2023,
https://arxiv.org/abs/2306.05685.)
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import fsum
from typing import Final

from ..attribution import AskedJudge
from ..attribution.judge import transcript
from .attempt import Attempt, Judgement

_QUESTION: Final = """Mark an agent's work by these criteria, each from 0 (not at all) to 1 (entirely):

{criteria}

{transcript}

Answer with one JSON object and nothing else: a number for each of {names}."""


@dataclass(frozen=True)
class Rubric:
    """The weighted mean of a judge's marks."""

    judge: AskedJudge
    criteria: Mapping[str, str]
    """Name → what it asks for."""
    weights: Mapping[str, float] | None = None
    """By criterion; None weighs all the same."""

    def __call__(self, attempt: Attempt) -> Judgement:
        """The reward of one attempt, with each criterion's contribution.

        Raises:
            ValueError: When the judge's answer cannot be understood.
        """
        found = self.judge.answer(self.question(attempt))
        if found is None:
            raise ValueError(f"judge {self.judge.name!r} gave no JSON object")
        weights = {name: (self.weights or {}).get(name, 0.0 if self.weights else 1.0) for name in self.criteria}
        total = fsum(weights.values())
        parts = {name: weights[name] / total * mark for name, mark in read_marks(found, self.criteria).items()}
        return Judgement(fsum(parts.values()), parts)

    def question(self, attempt: Attempt) -> str:
        """What the judge is asked."""
        return _QUESTION.format(
            criteria="\n".join(f"- {name}: {text}" for name, text in self.criteria.items()),
            transcript=transcript(attempt.episode),
            names=", ".join(self.criteria),
        )


def read_marks(answer: Mapping[str, object], criteria: Iterable[str]) -> dict[str, float]:
    """The mark of each criterion in a judge's answer.

    Raises:
        ValueError: A criterion has none, or one that is no number from 0 to 1.
    """
    return {name: _mark(answer.get(name), name) for name in criteria}


def _mark(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"criterion {name!r} was marked {value!r}, expected a number from 0 to 1")
    return float(value)
