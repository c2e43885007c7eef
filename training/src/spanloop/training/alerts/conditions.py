"""The condition of an alert's rule, as a user writes it: a limit for a figure of episodes, or an event.

Invariant: a condition is written as a text that says what it does, and the same text is stored and shown.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.jobs.schedules.schedule_settings import interval_text, parse_interval
from spanloop.training.jobs.states import JobState
from spanloop.training.promotion.outcome import PromotionOutcome

DEFAULT_WINDOW_MINUTES: Final = 60.0
LONGEST_WINDOW_MINUTES: Final = 7 * 24 * 60.0
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
_THRESHOLD: Final = re.compile(
    r"(?P<figure>[^\s%]+)(?: (?P<statistic>p50|p95|p99))?(?: of (?P<agent>.+?))? (?P<side>above|below)"
    r" (?P<limit>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?(?P<unit>%|ms|s|m)?(?: over (?P<window>\d+(?:\.\d+)?[mhd]))?"
    r"(?: with at least (?P<episodes>\d+) episodes?)?"
)
_EVENT: Final = re.compile(r"(?P<kind>job|promotion)(?: (?P<outcome>\w+))?")
_EXAMPLES: Final = (
    "Write 'failures above 20% over 1h', 'timeout of planner above 5% over 1h with at least 20 episodes', 'reward "
    "below 0.5 over 1d', 'latency p95 above 30s over 15m', 'cost above 20 over 1d', 'job failed', 'job ended' or "
    "'promotion', for example."
)


class Figure(StrEnum):
    """The measured figure that a threshold limits."""

    FAILURES = "failures"
    """Share of the episodes whose outcome is a failure, or of those with a failure of one class."""
    REWARD = "reward"
    """Mean reward of the episodes that have one."""
    LATENCY = "latency"
    """A percentile of the durations of episodes."""
    COST = "cost"
    """The cost of all model calls of the episodes, by the price table of spanloop.toml."""


class Threshold(NamedTuple):
    """A figure of the episodes that ended in a window of time is above or below a limit."""

    figure: Figure
    failure_class: str
    """Empty: episodes whose outcome is a failure."""
    statistic: str
    """The percentile of a latency: ``p50``, ``p95`` or ``p99``; else empty."""
    agent: str
    """Agent, or service of episodes without an agent's name; empty for all."""
    is_above: bool
    limit: float
    """In percent, in units of reward, in seconds, or in the currency of the price table."""
    window_minutes: float
    episodes: int
    """The condition does not hold for fewer episodes."""

    @property
    def window(self) -> timedelta:
        """The length of the window, which ends now."""
        return timedelta(minutes=self.window_minutes)

    def __str__(self) -> str:
        figure = self.failure_class or " ".join(filter(None, (self.figure.value, self.statistic)))
        agent = f" of {self.agent}" if self.agent else ""
        unit = {Figure.FAILURES: "%", Figure.LATENCY: "s"}.get(self.figure, "")
        least = f" with at least {self.episodes} episodes" if self.episodes > 1 else ""
        side = "above" if self.is_above else "below"
        return f"{figure}{agent} {side} {self.limit:.10g}{unit} over {interval_text(self.window_minutes)}{least}"


class JobEnd(NamedTuple):
    """A training job has ended."""

    states: frozenset[JobState]

    def __str__(self) -> str:
        return f"job {'ended' if len(self.states) > 1 else next(iter(self.states)).value}"


class PromotionDecision(NamedTuple):
    """It was decided whether a version becomes the champion."""

    outcomes: frozenset[PromotionOutcome]

    def __str__(self) -> str:
        return "promotion" if len(self.outcomes) > 1 else f"promotion {next(iter(self.outcomes)).value}"


Condition: TypeAlias = Threshold | JobEnd | PromotionDecision

_JOB_ENDS: Final = {
    "ended": frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}),
    "done": frozenset({JobState.SUCCEEDED}),
    **{str(state): frozenset({state}) for state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)},
}
_DECISIONS: Final = {"": frozenset(PromotionOutcome), **{each.value: frozenset({each}) for each in PromotionOutcome}}


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ConfigurationError: It is none.
    """
    normalised = " ".join(text.split())
    event, threshold = _EVENT.fullmatch(normalised), _THRESHOLD.fullmatch(normalised)
    if event is not None:
        return _event(text, event["kind"], event["outcome"] or "")
    if threshold is None:
        raise _invalid(text)
    return _threshold(text, threshold)


def _event(text: str, kind: str, outcome: str) -> Condition:
    if kind == "job" and outcome in _JOB_ENDS:
        return JobEnd(_JOB_ENDS[outcome])
    if kind == "promotion" and outcome in _DECISIONS:
        return PromotionDecision(_DECISIONS[outcome])
    expected = _JOB_ENDS if kind == "job" else [each for each in _DECISIONS if each]
    raise _invalid(text, f" After {kind!r} comes one of {', '.join(expected)}.")


def _threshold(text: str, match: re.Match[str]) -> Threshold:
    name, unit, statistic = match["figure"], match["unit"] or "", match["statistic"] or ""
    is_known = name in {Figure.REWARD, Figure.LATENCY, Figure.COST}
    figure = Figure(name) if is_known else Figure.FAILURES
    units_of = {Figure.FAILURES: {"%"}, Figure.LATENCY: set(_SECONDS)}
    expected = units_of.get(figure, {""})
    if unit not in expected:
        units = "no unit" if expected == {""} else f"one of the units {', '.join(sorted(expected))}"
        raise _invalid(text, f" The limit of {name} takes {units}.")
    if statistic and figure is not Figure.LATENCY:
        raise _invalid(text, f" {name} has no {statistic}.")
    limit, minutes = float(match["limit"]), _window(text, match["window"])
    limit *= _SECONDS.get(unit, 1.0)
    if (figure is Figure.FAILURES and not 0 <= limit <= 100) or (figure in {Figure.LATENCY, Figure.COST} and limit < 0):
        raise _invalid(text, " A share is between 0% and 100%, and a time or a cost is not negative.")
    return Threshold(
        figure=figure,
        failure_class="" if is_known or name == Figure.FAILURES else name,
        statistic=(statistic or "p95") if figure is Figure.LATENCY else "",
        agent=match["agent"] or "",
        is_above=match["side"] == "above",
        limit=limit,
        window_minutes=minutes,
        episodes=max(1, int(match["episodes"] or 1)),
    )


def _window(text: str, window: str | None) -> float:
    minutes = parse_interval(window) if window else DEFAULT_WINDOW_MINUTES
    if minutes > LONGEST_WINDOW_MINUTES:
        raise _invalid(text, f" The window is at most {interval_text(LONGEST_WINDOW_MINUTES)}.")
    return minutes


def _invalid(text: str, why: str = "") -> ConfigurationError:
    return ConfigurationError(f"{text!r} is no condition of an alert.{why}", next_step=_EXAMPLES)
