"""Goals, and what a budget refuses."""

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.metric import Metric
from spanloop.training.loop.budget import Budget, Spent, exceeded
from spanloop.training.loop.goal import Goal


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("success >= 0.9", Goal(Metric.SUCCESS, ">=", 0.9)),
        ("success>=90%", Goal(Metric.SUCCESS, ">=", 0.9)),
        (" latency_s < 2 ", Goal(Metric.LATENCY, "<", 2.0)),
        ("reward > -.5", Goal(Metric.REWARD, ">", -0.5)),
    ],
)
def test_a_goal_is_a_metric_an_operator_and_a_number(text: str, goal: Goal) -> None:
    assert Goal.parse(text) == goal


@pytest.mark.parametrize("text", ["", "success", "success >=", "success == 1", "success >= 0.9 and", "0.9 <= success"])
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Goal.parse(text)


def test_an_unknown_metric_has_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match="has the metric sucess") as caught:
        Goal.parse("sucess >= 0.9")
    assert caught.value.next_step == "Did you mean success?"


@pytest.mark.parametrize(("value", "is_reached"), [(0.89, False), (0.9, True), (0.95, True)])
def test_a_goal_is_reached_by_a_value(value: float, *, is_reached: bool) -> None:
    assert Goal.parse("success >= 0.9").is_reached(value) is is_reached


@pytest.mark.parametrize(
    ("spent", "expected", "refused"),
    [
        (Spent(80, 0), Spent(20, 0), ""),
        (Spent(80, 0), Spent(21, 0), "100 tokens: 80 are spent, and about 21 would follow"),
        (Spent(100, 0), Spent(1, 0), "100 tokens: 100 are spent"),
        (Spent(100, 0), Spent(0, 9), ""),
        (Spent(0, 3_600), Spent(0, 3_601), "2 hours: 1.00 are spent"),
        (Spent(10, 3_000), Spent(10, 1_000), ""),
    ],
)
def test_what_would_exceed_a_limit_is_refused(spent: Spent, expected: Spent, refused: str) -> None:
    refusal = exceeded(Budget(tokens=100, hours=2), spent, expected)
    assert (refusal[: len(refused)], bool(refusal)) == (refused, bool(refused))


def test_money_is_tokens_and_hours_by_their_prices() -> None:
    budget = Budget(money=10, price_per_hour=2, price_per_million_tokens=0.5)
    assert Spent(4_000_000, 3 * 3_600).money(budget) == pytest.approx(8)
    assert exceeded(budget, Spent(4_000_000, 3 * 3_600), Spent(0, 3_600)) == ""
    assert exceeded(budget, Spent(4_000_000, 3 * 3_600), Spent(0, 3_700)).startswith("10 in money: 8.00 is spent")
    assert exceeded(Budget(), Spent(10**12, 10**9), Spent()) == ""
