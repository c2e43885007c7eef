"""Input and output of a reward function: an attempt with its scores and failures, and a judgement.

Invariant: a judgement's components add up to its value, so that a reward can always be taken apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from spanloop.foundation.plugins import Extension, adapt_callable
from spanloop.messages import ToolCall
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

from ..attribution import Failure, attribute
from ..judgements import NO_JUDGEMENTS, Judgements
from ..results.tool_results import ToolResult
from ..steps import Episode, Step
from .base import Rewards


class Judgement(NamedTuple):
    """The reward of an attempt, with its components."""

    value: float
    components: dict[str, float]
    """Name → contribution; they add up to ``value``. Empty for a reward of one piece."""
    label: str = ""
    """``success`` or ``failure``, where the function knows; empty leaves it to the threshold."""
    reason: str = ""
    """One sentence that explains the value; empty for none."""


class Call(NamedTuple):
    """A tool call in its place."""

    step: Step
    call: ToolCall
    result: ToolResult | None


@dataclass(frozen=True)
class Attempt:
    """One episode as a reward function sees it."""

    episode: Episode
    scores: Rewards
    """Scores from outside."""
    judgements: Judgements = NO_JUDGEMENTS
    """Judgements of people."""

    @property
    def task_id(self) -> str:
        """The task; empty without one."""
        return self.episode.task_id

    @property
    def answer(self) -> str:
        """Text of the last answer; empty when the last call gave none."""
        output = self.episode.steps[-1].span.output
        return output[0].text if output else ""

    @property
    def duration_s(self) -> float:
        """Seconds from the first start to the last end of a span."""
        spans = self.episode.spans
        return (max(span.end_ns for span in spans) - min(span.start_ns for span in spans)) / 1e9

    @property
    def calls(self) -> list[Call]:
        """Every tool call in order."""
        all_calls: list[Call] = []
        for step in self.episode.steps:
            results = {result.position: result for result in step.results}
            calls = step.span.output[0].tool_calls if step.span.output else ()
            all_calls += [Call(step, call, results.get(position)) for position, call in enumerate(calls)]
        return all_calls

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """Failures of the steps, whatever the outcome."""
        return attribute(self.episode, has_failed=False, reward=None, judgements=self.judgements)


RewardFunction = Callable[[Attempt], Judgement | float | None]
"""None: nothing to say about this attempt."""


class Reward(Extension):
    """A reward function with its options."""

    def __call__(self, attempt: Attempt) -> Judgement | float | None:
        """Return the reward of an attempt; None when there is nothing to say about it."""
        raise NotImplementedError


def reward_of_callable(function: Callable[..., object], what: str) -> type[Reward]:
    """Return the class of a callable from an attempt to a reward."""
    return adapt_callable(function, Reward, method="__call__", arguments=("attempt",), what=what)


class NamedReward(NamedTuple):
    """A reward function under the name that its reward is stored by."""

    name: str
    function: RewardFunction


def judgement(result: Judgement | float) -> Judgement:
    """Return the result of a reward function as a judgement.

    Raises:
        ValueError: When the value or a component is not a valid score, or the components do not add up to the value.
    """
    made = result if isinstance(result, Judgement) else Judgement(float(result), {})
    values = {"value": made.value, **made.components}
    for name, value in values.items():
        if not is_valid_score(value):
            raise ValueError(f"{name} is {value!r}, expected {SCORE_RANGE}")
    total = math.fsum(made.components.values())
    if made.components and not math.isclose(total, made.value, rel_tol=1e-6, abs_tol=1e-9):
        raise ValueError(f"components add up to {total!r}, expected the value {made.value!r}")
    return made
