"""Conditions of alerts: the same text is read, stored and shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.alerts.conditions import Threshold, parse_condition


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failures above 20%", "failures above 20% over 1h"),
        ("failures of my planner above 20 % over 15m", "failures of my planner above 20% over 15m"),
        ("timeout above 5% over 2h with at least 20 episodes", "timeout above 5% over 2h with at least 20 episodes"),
        ("reward of planner below 0.5 over 1d", "reward of planner below 0.5 over 1d"),
        ("reward below -1.5", "reward below -1.5 over 1h"),
        ("latency above 500ms over 15m", "latency p95 above 0.5s over 15m"),
        ("latency p50 of planner above 2m", "latency p50 of planner above 120s over 1h"),
        ("job failed", "job failed"),
        ("job done", "job succeeded"),
        ("job ended", "job ended"),
        ("promotion", "promotion"),
        ("promotion  rolled_back", "promotion rolled_back"),
    ],
)
def test_a_condition_is_shown_as_it_is_written_and_read_again(text: str, shown: str) -> None:
    assert str(parse_condition(text)) == shown
    assert parse_condition(shown) == parse_condition(text)


@given(
    st.sampled_from(["failures", "timeout"]),
    st.floats(0, 100, allow_nan=False),
    st.integers(1, 10_000),
    st.integers(1, 1_000_000),
)
def test_every_limit_and_window_is_read_again(name: str, limit: float, minutes: int, episodes: int) -> None:
    condition = parse_condition(f"{name} above {limit:.10g}% over {minutes}m with at least {episodes} episodes")
    assert isinstance(condition, Threshold)
    assert condition.limit == pytest.approx(limit, rel=1e-9)
    assert (condition.window_minutes, condition.episodes) == (minutes, episodes)
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no condition"),
        ("failures", "is no condition"),
        ("failures above 20", "takes one of the units %"),
        ("failures above 120%", "between 0% and 100%"),
        ("failures p95 above 20%", "has no p95"),
        ("reward below 5%", "takes no unit"),
        ("latency above 5", "takes one of the units m, ms, s"),
        ("latency above 5s over 30d", "at most 7d"),
        ("job exploded", "one of ended, done, succeeded, failed, cancelled"),
        ("job", "one of ended"),
        ("promotion perhaps", "one of promoted, kept, rolled_back, undecided"),
        ("cost above 10% over 1d", "The limit of cost takes no unit"),
        ("cost below -1", "a time or a cost is not negative"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_condition(text)
    assert why in str(caught.value)
