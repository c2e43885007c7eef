from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Guard, Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.canary.session_blocks import Session
from spanloop.training.promotion.judge import Pair, judge, judge_canary
from spanloop.training.promotion.outcome import PromotionOutcome


def pairs(*blocks: tuple[int, float, float]) -> Mapping[str, Pair]:
    """Blocks of tasks with equal values: how many, candidate's, champion's."""
    values = [Pair(candidate, champion) for count, candidate, champion in blocks for _ in range(count)]
    return {f"task-{number}": pair for number, pair in enumerate(values)}


def no_crashes(tasks: Mapping[str, Pair]) -> Mapping[Metric, Mapping[str, Pair]]:
    return {Metric.SUCCESS: tasks, Metric.CRASHES: {task: Pair(0, 0) for task in tasks}}


BETTER = pairs((40, 1, 0), (5, 0, 1), (55, 1, 1))


def test_a_candidate_that_is_shown_to_be_better_is_promoted_with_its_evidence() -> None:
    outcome, evidence = (found := judge(Promotion(), no_crashes(BETTER))).outcome, found.evidence
    assert outcome is PromotionOutcome.PROMOTED
    measured = evidence.measured
    assert measured is not None
    assert (measured.count, measured.wins, measured.losses) == (100, 40, 5)
    assert (measured.candidate, measured.champion) == pytest.approx((0.95, 0.60))
    assert measured.low is not None
    assert measured.high is not None
    assert 0 < measured.low < measured.difference < measured.high
    assert measured.better_e_value is not None
    assert measured.better_e_value >= 20
    (guard,) = evidence.guards
    assert (guard.metric, guard.limit, guard.holds, guard.candidate) == (Metric.CRASHES, "at_most 0.25", True, 0)
    assert "better: success differs by +0.350 on 100 tasks" in evidence.reason


def test_too_few_tasks_leave_it_open_and_all_of_them_keep_the_champion() -> None:
    few = no_crashes(pairs((20, 1, 0)))
    assert judge(Promotion(min_tasks=21), few).outcome is PromotionOutcome.UNDECIDED
    assert judge(Promotion(), few).outcome is PromotionOutcome.PROMOTED
    equal = no_crashes(pairs((10, 1, 0), (10, 0, 1), (80, 1, 1)))
    assert judge(Promotion(), equal).outcome is PromotionOutcome.UNDECIDED
    kept = judge(Promotion(max_tasks=100), equal)
    assert kept.outcome is PromotionOutcome.KEPT
    assert "100 tasks did not show that the candidate is better" in kept.evidence.reason


def test_a_candidate_that_is_worse_is_not_promoted_however_many_tasks_are_left() -> None:
    found = judge(Promotion(), no_crashes(pairs((5, 1, 0), (40, 0, 1))))
    assert found.outcome is PromotionOutcome.KEPT
    assert "worse" in found.evidence.reason


def test_a_gain_within_the_margin_is_no_gain() -> None:
    assert judge(Promotion(margin=0.5), no_crashes(BETTER)).outcome is PromotionOutcome.UNDECIDED


def test_versions_without_a_common_task_are_undecided() -> None:
    found = judge(Promotion(), {})
    assert found.outcome is PromotionOutcome.UNDECIDED
    assert "no task in common" in found.evidence.reason


def test_a_candidate_that_crashes_in_half_of_its_attempts_is_not_promoted_although_it_succeeds_more_often() -> None:
    generator = np.random.default_rng(1)
    crashes = (generator.random(450) < 0.5).astype(float)
    success = {f"{number}": Pair(1 - crash, float(number % 5 == 0)) for number, crash in enumerate(crashes)}
    crashed = {f"{number}": Pair(crash, 0) for number, crash in enumerate(crashes)}
    looks = [
        judge(
            Promotion(),
            {
                Metric.SUCCESS: dict(list(success.items())[:tasks]),
                Metric.CRASHES: dict(list(crashed.items())[:tasks]),
            },
        )
        for tasks in range(45, 451, 45)
    ]
    assert [look.outcome for look in looks] == [PromotionOutcome.UNDECIDED] * 9 + [PromotionOutcome.KEPT]
    assert "did not show that it keeps to crashes at_most 0.25" in looks[-1].evidence.reason


@pytest.mark.parametrize(
    ("metric", "guard", "candidate", "champion", "holds"),
    [
        (Metric.TOKENS, Guard(max_ratio=1.5), 140, 100, True),
        (Metric.TOKENS, Guard(max_ratio=1.5), 160, 100, False),
        (Metric.LATENCY, Guard(max_increase=2), 3, 2, True),
        (Metric.LATENCY, Guard(at_most=2.5), 3, 2, False),
        (Metric.ERRORS, Guard(max_increase=0.2), 0.1, 0.1, True),
        (Metric.ERRORS, Guard(max_increase=0.2), 0.5, 0.1, False),
        (Metric.REWARD, Guard(max_decrease=0.3), 0.5, 0.5, True),
        (Metric.REWARD, Guard(at_least=0.6), 0.5, 0.5, False),
    ],
)
def test_a_guard_must_hold(metric: Metric, guard: Guard, candidate: float, champion: float, holds: bool) -> None:  # noqa: FBT001
    rule = Promotion(guards={metric: guard})
    measured = {metric: pairs((100, candidate, champion))}
    found = judge(rule, {**no_crashes(BETTER), **measured})
    assert (found.outcome is PromotionOutcome.PROMOTED) == holds
    check = next(check for check in found.evidence.guards if check.metric is metric)
    assert check.holds == holds
    assert [check.candidate, check.champion] == pytest.approx([candidate, champion])
    assert (check.e_value is None) == (metric in {Metric.TOKENS, Metric.LATENCY})


def test_a_guard_without_a_measurement_does_not_hold() -> None:
    found = judge(Promotion(guards={Metric.PLAN_SUCCESS: Guard(at_least=0.1)}), no_crashes(BETTER))
    assert found.outcome is PromotionOutcome.UNDECIDED
    assert "not shown yet: plan_success at_least 0.1" in found.evidence.reason


def test_rewards_have_the_range_of_the_rule() -> None:
    rewards = pairs((60, 8, 2), (40, 5, 5))
    rule = Promotion(metric=Metric.REWARD, reward_range=(-10, 10), margin=1)
    measured = {Metric.CRASHES: no_crashes(rewards)[Metric.CRASHES], Metric.REWARD: rewards}
    found = judge(rule, measured)
    assert found.outcome is PromotionOutcome.PROMOTED
    assert found.evidence.measured is not None
    assert found.evidence.measured.difference == pytest.approx(3.6)
    assert found.evidence.measured.high is not None
    assert 3.6 < found.evidence.measured.high < 20
    with pytest.raises(ConfigurationError, match=r"reward 8, and \[promotion\] expects 0 to 1") as caught:
        judge(Promotion(metric=Metric.REWARD), measured)
    assert "reward_range" in caught.value.next_step


def sessions(canary: Sequence[float], champion: Sequence[float]) -> list[Session]:
    """Canary sessions, each followed by an equal share of the champion's."""
    share = len(champion) // len(canary)
    rows = [
        [Session(is_candidate=True, value=value)]
        + [Session(is_candidate=False, value=each) for each in champion[number * share : (number + 1) * share]]
        for number, value in enumerate(canary)
    ]
    return [session for row in rows for session in row]


def live(canary: Sequence[float], champion: Sequence[float]) -> Mapping[Metric, Sequence[Session]]:
    found = sessions(canary, champion)
    return {Metric.SUCCESS: found, Metric.CRASHES: [Session(each.is_candidate, 0.0) for each in found]}


def test_a_canary_is_promoted_rolled_back_or_left_running() -> None:
    good, bad = [1.0, 1.0, 1.0, 1.0, 0.0] * 20, [1.0, 0.0, 0.0, 0.0, 0.0] * 20
    assert judge_canary(Promotion(), live(good, bad * 9)).outcome is PromotionOutcome.PROMOTED
    worse = judge_canary(Promotion(), live(bad, good * 9))
    assert worse.outcome is PromotionOutcome.ROLLED_BACK
    assert worse.evidence.measured is not None
    assert [worse.evidence.measured.count, worse.evidence.measured.difference] == pytest.approx([100, -0.6])
    assert judge_canary(Promotion(), live(good, good * 9)).outcome is PromotionOutcome.UNDECIDED
    assert judge_canary(Promotion(max_sessions=100), live(good, good * 9)).outcome is PromotionOutcome.KEPT
    assert judge_canary(Promotion(), {}).outcome is PromotionOutcome.UNDECIDED


def test_a_canary_that_answers_too_slowly_is_not_promoted() -> None:
    good, bad = [1.0] * 60, [0.0] * 540
    rule = Promotion(guards={Metric.LATENCY: Guard(max_ratio=1.2)})
    for latency, outcome in ((1.1, PromotionOutcome.PROMOTED), (1.3, PromotionOutcome.UNDECIDED)):
        slow = {Metric.LATENCY: sessions([latency] * 60, [1.0] * 540)}
        assert judge_canary(rule, {**live(good, bad), **slow}).outcome is outcome
