"""The composite reward of a tool-using agent: weighted components and penalties, each configurable.

``reward = Σ w·c / Σ w + Σ penalty·count``, over the components that apply, clipped to ``[least, most]``. Components lie
between 0 and 1:

- completion: the answer is the expected one; without an expected one, what was scored from outside; else whether the
  episode ended with an answer.
- tool_selection: F1 of the called tool names against the expected ones, as multisets. Does not apply without them.
- efficiency: expected steps over steps, at most 1; without them, the share of tool calls that were not redundant.
- timing: the time allowed over the time taken, at most 1.
- format: the share of model calls whose output could be read.
- tool_success, tool_timing, recovery: of ``tool_use``; their weight is 0 unless one is given.
- rating: a user's rating, the score named ``rating``, from 0 to 1; its weight is 0 unless one is given.

Weights of components that do not apply are shared out among the others. Only mistakes of the policy's own are
penalised: a tool that timed out costs nothing, an episode that took longer than ``timeout_s`` does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from math import fsum
from typing import Any, Final

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from spanloop.foundation.errors import ConfigurationError
from spanloop.messages import digest, dump, parse_json

from ..attribution import VALUE_RULES, ErrorClass, Failure
from .attempt import Attempt, Call, Judgement, Reward
from .comparison import same_text
from .measures import share_of_budget
from .tool_use import ReferenceCall, recovery, tool_success, tool_timing

RATING_NAME: Final = "rating"
"""The score that is a user's rating."""
_STRICT: Final = ConfigDict(extra="forbid")
_FORMAT_ERRORS: Final = frozenset(
    {ErrorClass.INVALID_ARGUMENTS, ErrorClass.MALFORMED_OUTPUT, ErrorClass.TRUNCATED_OUTPUT}
)


@dataclass(frozen=True, config=_STRICT)
class Weights:
    """Shares of the components; they need not add up to 1. A weight of 0 leaves a component out."""

    completion: float = 0.4
    """Agreement with the expected answer, else the score from outside, else whether there is an answer."""
    tool_selection: float = 0.25
    """F1 of called against expected tools."""
    efficiency: float = 0.15
    """Expected steps over steps, else the share of calls that were not redundant."""
    timing: float = 0.10
    """Time allowed over time taken."""
    format: float = 0.10
    """Share of model calls whose output could be read."""
    tool_success: float = 0.0
    """Share of answered tool calls without an error."""
    tool_timing: float = 0.0
    """Share of the reference calls that were made when they were needed."""
    recovery: float = 0.0
    """Value of the calls after failed ones: a fallback that works is worth more than a repetition."""
    rating: float = 0.0
    """A user's rating: the score named ``rating``, from 0 to 1."""


@dataclass(frozen=True, config=_STRICT)
class Penalties:
    """Amounts that each occurrence adds to the reward: at most 0."""

    wrong_tool: float = -0.3
    """A call of a tool that was not offered, or (where tools are expected) of one that is not expected."""
    redundant_call: float = -0.2
    """A call that had been answered already, with the same arguments."""
    format_error: float = -0.1
    """An output that cannot be read: broken arguments, a call as plain text, a cut."""
    timeout: float = -0.5
    """The episode took longer than ``timeout_s``; once."""


@dataclass(frozen=True, config=_STRICT)
class Expectation:
    """Properties of a task that are known beforehand; None for the others."""

    answer: str | Sequence[str] | None = None
    """The text, or several of which one is enough."""
    tools: Sequence[str] | None = None
    """Names in any order, with repetitions."""
    steps: int | None = None
    seconds: float | None = None
    calls: Sequence[ReferenceCall] | None = None
    """Calls that are needed, in order."""
    tool_timing: float | None = None
    """A grader's mark of the timing of tool calls, from 0 to 1; counts where there are no ``calls``."""


class AgentReward(Reward):
    """The composite reward of a tool-using agent: weighted components and penalties.

    Raises:
        ConfigurationError: When a weight is negative, none is positive, or a penalty is positive.
    """

    expectations: Mapping[str, Expectation] = Field(default_factory=dict[str, Expectation])
    """By task id."""
    weights: Weights = Weights()
    """Shares of the components."""
    penalties: Penalties = Penalties()
    """Amounts that each occurrence of a mistake adds."""
    seconds: float = 30.0
    """Time allowed where a task says nothing."""
    timeout_s: float = 300.0
    """Longest time of an episode, in seconds; a longer one is penalised once."""
    least: float = -1.0
    """Smallest reward."""
    most: float = 1.0
    """Largest reward."""

    def model_post_init(self, context: Any, /) -> None:
        """Check weights and penalties."""
        del context
        weights = [float(getattr(self.weights, each.name)) for each in fields(self.weights)]
        penalties = [float(getattr(self.penalties, each.name)) for each in fields(self.penalties)]
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
            raise ConfigurationError(
                f"Weights {weights} of a reward cannot be used, expected numbers of at least 0 and one above.",
                next_step="Give every component a weight of 0 or more.",
            )
        if not all(-float("inf") < penalty <= 0 for penalty in penalties):
            raise ConfigurationError(
                f"Penalties {penalties} of a reward cannot be used, expected numbers of at most 0.",
                next_step="Give every penalty as what it adds: -0.3, not 0.3.",
            )

    def __call__(self, attempt: Attempt) -> Judgement:
        """The reward of one attempt, with every component's and penalty's contribution."""
        return self.judge(attempt, self.expectations.get(attempt.task_id, Expectation()))

    def judge(self, attempt: Attempt, expected: Expectation) -> Judgement:
        """Return the reward of one attempt at a task of which ``expected`` is known."""
        calls = attempt.calls
        redundant = count_redundant(calls)
        measured = {
            "completion": _completion(attempt, expected),
            "tool_selection": _tool_selection(calls, expected),
            "efficiency": _efficiency(attempt, expected, len(calls), redundant),
            "timing": share_of_budget(expected.seconds or self.seconds, attempt.duration_s),
            "format": 1.0 - _misshapen_steps(attempt) / len(attempt.episode.steps),
            "tool_success": tool_success(calls),
            "tool_timing": expected.tool_timing if expected.calls is None else tool_timing(calls, expected.calls),
            "recovery": recovery(calls),
            "rating": _rating(attempt),
        }
        weights = {name: getattr(self.weights, name) for name, value in measured.items() if value is not None}
        total = fsum(weights.values())
        contributions = {
            name: weights[name] * value / total
            for name, value in measured.items()
            if value is not None and total and weights[name]
        }
        counts = {
            "wrong_tool": _wrong_tools(attempt, calls, expected),
            "redundant_call": redundant,
            "format_error": _format_errors(attempt),
            "timeout": int(attempt.duration_s > self.timeout_s),
        }
        contributions |= {name: getattr(self.penalties, name) * count for name, count in counts.items() if count}
        raw = fsum(contributions.values())
        value = min(max(raw, self.least), self.most)
        if value != raw:
            contributions["clipped"] = value - raw
        return Judgement(value, contributions, reason=_reason(value, contributions))


def _reason(value: float, contributions: Mapping[str, float]) -> str:
    """Return one sentence: the reward, and what contributed most and least."""
    by_size = sorted(contributions.items(), key=lambda item: item[1])
    if not by_size:
        return f"The reward is {value:.2f}: no component applies."
    (least, low), (most, high) = by_size[0], by_size[-1]
    text = f"The reward is {value:.2f}: {most} contributes most ({high:+.2f})"
    return f"{text}, {least} least ({low:+.2f})." if len(by_size) > 1 else f"{text}."


def _rating(attempt: Attempt) -> float | None:
    rating = attempt.scores.breakdown.get(RATING_NAME)
    return None if rating is None else min(max(rating, 0.0), 1.0)


def _completion(attempt: Attempt, expected: Expectation) -> float:
    if expected.answer is not None:
        return float(same_text(attempt.answer, expected.answer))
    if attempt.scores.value is not None:
        return min(max(attempt.scores.value, 0.0), 1.0)
    last = attempt.episode.steps[-1].span
    return float(bool(last.output) and not last.has_failed and not last.output[0].tool_calls)


def _tool_selection(calls: Sequence[Call], expected: Expectation) -> float | None:
    return None if expected.tools is None else f1([each.call.name for each in calls], expected.tools)


def f1(called: Sequence[str], expected: Sequence[str]) -> float:
    """F1 = 2·|got ∩ expected| / (|got| + |expected|) of two multisets; 1 for two empty ones (van Rijsbergen, 1979)."""
    total = len(called) + len(expected)
    shared = sum((Counter(called) & Counter(expected)).values())
    return 2 * shared / total if total else 1.0


def _efficiency(attempt: Attempt, expected: Expectation, calls: int, redundant: int) -> float:
    if expected.steps is not None:
        return share_of_budget(expected.steps, len(attempt.episode.steps))
    return 1.0 - redundant / calls if calls else 1.0


def count_redundant(calls: Sequence[Call]) -> int:
    """Calls of which an earlier one, with the same name and arguments, had already been answered without an error.

    An answer that differs from the one before makes a call worth while.
    """
    answered: dict[bytes, str] = {}
    redundant = 0
    for each in calls:
        if each.result is None or each.result.is_error:
            continue
        arguments = dump(parse_json(each.call.arguments)) if each.call.is_valid else each.call.arguments
        key = digest([each.call.name, arguments])
        redundant += answered.get(key) == each.result.content
        answered[key] = each.result.content
    return redundant


def _wrong_tools(attempt: Attempt, calls: Sequence[Call], expected: Expectation) -> int:
    unknown = sum(failure.finding.error_class == ErrorClass.UNKNOWN_TOOL for failure in attempt.failures)
    if expected.tools is None:
        return unknown
    return max(unknown, sum(each.call.name not in expected.tools for each in calls))


def _format_errors(attempt: Attempt) -> int:
    return sum(_is_misshapen(failure) for failure in attempt.failures)


def _is_misshapen(failure: Failure) -> bool:
    return failure.finding.error_class in _FORMAT_ERRORS and failure.rule not in VALUE_RULES


def _misshapen_steps(attempt: Attempt) -> int:
    return len({failure.step.index for failure in attempt.failures if _is_misshapen(failure)})
