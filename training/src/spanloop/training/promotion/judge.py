"""The outcome of a rule on the evidence: pure, so that simulations measure what decides.

Invariant: a candidate is promoted only when the sequential test shows that it is better by more than the margin and
every guard holds. Guards on bounded metrics (shares of attempts, rewards) hold when a test of the same level shows that
the limit is kept; those on latency, tokens and steps when the means keep it.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Guard, Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.outcome import PromotionOutcome

from .canary.session_blocks import CanaryTest, Session
from .evidence import Evidence, GuardCheck, Judgement, Measured
from .sequential import SequentialTest, anytime_interval


class Pair(NamedTuple):
    """Values of one metric at one task, each the mean over attempts."""

    candidate: float
    champion: float


TaskPairs = Mapping[str, Pair]
"""Task → pair."""


def judge(rule: Promotion, pairs: Mapping[Metric, TaskPairs]) -> Judgement:
    """Return the outcome on a candidate whose tasks the champion attempted too.

    Args:
        rule: What must be shown.
        pairs: For each metric of the rule the tasks of both versions.

    Raises:
        ConfigurationError: A reward is outside the rule's range.
    """
    compared = list(pairs.get(rule.metric, {}).values())
    if not compared:
        reason = f"The versions have no task in common with {rule.metric}."
        return Judgement(outcome=PromotionOutcome.UNDECIDED, evidence=Evidence(reason=reason))
    for metric, of_tasks in pairs.items():
        _check_values(rule, metric, itertools.chain.from_iterable(of_tasks.values()))
    width = rule.bounds[1] - rule.bounds[0]
    differences = [(pair.candidate - pair.champion) / width for pair in compared]
    better = SequentialTest(rule.margin / width).update(differences)
    worse = SequentialTest(rule.tolerance / width).update([-difference for difference in differences])
    interval = anytime_interval(differences, alpha=rule.alpha)
    measured = Measured(
        metric=rule.metric,
        count=len(compared),
        candidate=_mean([each.candidate for each in compared]),
        champion=_mean([each.champion for each in compared]),
        low=interval.low * width,
        high=interval.high * width,
        better_e_value=better.e_value,
        worse_e_value=worse.e_value,
        wins=sum(difference > 0 for difference in differences),
        losses=sum(difference < 0 for difference in differences),
    )
    guards = tuple(
        check
        for metric, guard in rule.guards.items()
        for check in _paired_checks(rule, metric, guard, list(pairs.get(metric, {}).values()))
    )
    return _judge(rule, measured, guards, _TASKS)


def judge_canary(rule: Promotion, sessions: Mapping[Metric, Sequence[Session]]) -> Judgement:
    """Return the outcome on a candidate that serves a share of the sessions: promoted, rolled back, kept or undecided.

    Args:
        rule: What must be shown; its numbers of tasks are rewarded sessions of the candidate.
        sessions: For each metric of the rule the sessions that have it, in the order of their start, with values as
            they are stored.

    Raises:
        ConfigurationError: A reward is outside the rule's range.
    """
    for metric, each in sessions.items():
        _check_values(rule, metric, (session.value for session in each))
    low, high = rule.bounds
    state = CanaryTest.start(margin=rule.margin / (high - low), tolerance=rule.tolerance / (high - low)).update(
        Session(session.is_candidate, (session.value - low) / (high - low)) for session in sessions.get(rule.metric, ())
    )
    measured = Measured(
        metric=rule.metric,
        count=state.candidate.sessions,
        candidate=low + (high - low) * state.candidate.mean,
        champion=low + (high - low) * state.champion.mean,
        better_e_value=state.better.e_value,
        worse_e_value=state.worse.e_value,
    )
    guards = tuple(
        check
        for metric, guard in rule.guards.items()
        for check in _canary_checks(rule, metric, guard, sessions.get(metric, ()))
    )
    return _judge(rule, measured, guards, _SESSIONS)


class _Setting(NamedTuple):
    """Where the versions are compared."""

    unit: str
    worse: PromotionOutcome
    """The outcome on a candidate that is worse."""
    is_live: bool


_TASKS: Final = _Setting("tasks", PromotionOutcome.KEPT, is_live=False)
_SESSIONS: Final = _Setting("sessions", PromotionOutcome.ROLLED_BACK, is_live=True)


def _judge(rule: Promotion, measured: Measured, guards: tuple[GuardCheck, ...], setting: _Setting) -> Judgement:
    most = rule.max_sessions if setting.is_live else rule.max_tasks
    is_worse, is_better = (
        (value or 0.0) >= 1 / rule.alpha for value in (measured.worse_e_value, measured.better_e_value)
    )
    broken = ", ".join(f"{check.metric} {check.limit}" for check in guards if not check.holds)
    difference = f"{measured.metric} differs by {measured.difference:+.3f} on {measured.count} {setting.unit}"
    if is_worse:
        outcome, reason = setting.worse, f"The candidate is worse: {difference}."
    elif is_better and measured.count >= rule.min_tasks and not broken:
        outcome, reason = PromotionOutcome.PROMOTED, f"The candidate is better: {difference}."
    elif measured.count >= most:
        outcome = PromotionOutcome.KEPT
        missing = f"that it keeps to {broken}" if is_better else "that the candidate is better"
        reason = f"{most} {setting.unit} did not show {missing}: {difference}."
    else:
        outcome = PromotionOutcome.UNDECIDED
        missing = f"not shown yet: {broken}" if is_better and broken else "not enough to decide"
        begin = f"{difference[:1].upper()}{difference[1:]}; {missing}."
        reason = f"{begin} At least {rule.min_tasks} are needed, and at most {most} are compared."
    return Judgement(outcome=outcome, evidence=Evidence(reason=reason, measured=measured, guards=guards))


class _Limit(NamedTuple):
    """One limit of a guard: its slack, which is negative when the limit is exceeded, is linear in both values."""

    text: str
    constant: float
    of_candidate: float
    of_champion: float
    is_tested: bool = True
    """Whether a test shows that it is kept, where the metric has bounds; else the means are compared."""

    def slack(self, candidate: float, champion: float) -> float:
        """Return the slack of the values of candidate and champion."""
        return self.constant + self.of_candidate * candidate + (self.of_champion and self.of_champion * champion)


def _limits(guard: Guard) -> Iterator[_Limit]:
    if guard.at_least is not None:
        yield _Limit(f"at_least {guard.at_least:g}", -guard.at_least, 1, 0)
    if guard.at_most is not None:
        yield _Limit(f"at_most {guard.at_most:g}", guard.at_most, -1, 0)
    if guard.max_increase is not None:
        yield _Limit(f"max_increase {guard.max_increase:g}", guard.max_increase, -1, 1)
    if guard.max_decrease is not None:
        yield _Limit(f"max_decrease {guard.max_decrease:g}", guard.max_decrease, 1, -1)
    if guard.max_ratio is not None:
        yield _Limit(f"max_ratio {guard.max_ratio:g}", 0, -1, guard.max_ratio, is_tested=False)


def _paired_checks(rule: Promotion, metric: Metric, guard: Guard, pairs: Sequence[Pair]) -> Iterator[GuardCheck]:
    candidate, champion = [pair.candidate for pair in pairs], [pair.champion for pair in pairs]
    for limit in _limits(guard):
        slacks = [limit.slack(*pair) for pair in pairs]
        yield _check(rule, metric, limit, candidate=candidate, champion=champion, slacks=slacks)


def _canary_checks(rule: Promotion, metric: Metric, guard: Guard, sessions: Sequence[Session]) -> Iterator[GuardCheck]:
    candidate = [session.value for session in sessions if session.is_candidate]
    champion = [session.value for session in sessions if not session.is_candidate]
    for limit in _limits(guard):
        slacks = None if limit.of_champion else [limit.slack(value, 0.0) for value in candidate]
        yield _check(rule, metric, limit, candidate=candidate, champion=champion, slacks=slacks)


def _check(
    rule: Promotion,
    metric: Metric,
    limit: _Limit,
    *,
    candidate: Sequence[float],
    champion: Sequence[float],
    slacks: Sequence[float] | None,
) -> GuardCheck:
    bounds = rule.bounds_of(metric)
    test = None
    if bounds and limit.is_tested and slacks is not None:
        largest = max(abs(limit.slack(*ends)) for ends in itertools.product(bounds, bounds))
        test = SequentialTest().update([slack / largest for slack in slacks])
    is_measured = bool(candidate) and (bool(champion) or not limit.of_champion)
    means_hold = is_measured and limit.slack(_mean(candidate), _mean(champion)) >= 0
    return GuardCheck(
        metric=metric,
        limit=limit.text,
        holds=means_hold if test is None else test.rejects(rule.alpha),
        candidate=_mean(candidate) if candidate else None,
        champion=_mean(champion) if champion else None,
        e_value=None if test is None else test.e_value,
    )


def _check_values(rule: Promotion, metric: Metric, values: Iterable[float]) -> None:
    bounds = rule.bounds_of(metric)
    for value in values if bounds else ():
        low, high = bounds or (0.0, 1.0)
        if not low <= value <= high:
            raise ConfigurationError(
                f"A task has the {metric} {value:g}, and [promotion] expects {low:g} to {high:g}.",
                next_step="Set reward_range in [promotion] of spanloop.toml to the range of your rewards.",
            )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan
