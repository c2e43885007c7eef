"""Formatting of numbers, durations and ids."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.dashboard.view_models import formatting
from spanloop.dashboard.view_models.filters import source_text

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("nanoseconds", "shown"),
    [
        (0, "0 µs"),
        (840_000, "840 µs"),
        (12_300_000, "12.3 ms"),
        (999_600_000, "1.00 s"),
        (4_200_000_000, "4.20 s"),
        (42_000_000_000, "42 s"),
        (59_960_000_000, "1 min 00 s"),
        (185_000_000_000, "3 min 05 s"),
        (7_500_000_000_000, "2 h 05 min"),
    ],
)
def test_a_duration_has_two_or_three_digits(nanoseconds: int, shown: str) -> None:
    assert formatting.duration(nanoseconds) == shown


@given(st.integers(min_value=0, max_value=10**18))
def test_every_duration_is_short_and_has_a_unit(nanoseconds: int) -> None:
    shown = formatting.duration(nanoseconds)
    assert any(shown.endswith(unit) for unit in ("µs", "ms", "s", "min"))
    assert "e+" not in shown
    assert len(shown) <= 16


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (54_000, "54,000"), (123_456, "123.5 k"), (2_500_000, "2.5 M"), (-3, "-3")]
)
def test_large_counts_are_shortened(value: int, shown: str) -> None:
    assert formatting.count(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "now"), (5, "5 s ago"), (61, "1 min ago"), (7_300, "2 h ago"), (200_000, "2 d ago"), (-90, "in 1 min")],
)
def test_ago_uses_the_largest_unit(seconds: int, shown: str) -> None:
    assert formatting.ago(NOW - timedelta(seconds=seconds), NOW) == shown


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    assert formatting.ago(None, NOW) == formatting.DASH
    assert formatting.number(None) == formatting.DASH
    assert formatting.signed(None) == formatting.DASH
    assert formatting.signed(0.0) == "0"
    assert formatting.percent(0, 0) == formatting.DASH
    assert formatting.percent(0, 3) == "0 %"


def test_a_reward_shows_its_sign() -> None:
    assert formatting.signed(1.0) == "+1"
    assert formatting.signed(-0.6) == "-0.6"


@given(st.text(), st.integers(min_value=1, max_value=80))
def test_one_line_is_one_line_and_no_longer_than_asked(text: str, length: int) -> None:
    shown = formatting.one_line(text, length)
    assert "\n" not in shown
    assert len(shown) <= length


def test_short_id_keeps_what_fits() -> None:
    assert formatting.short_id("abcdefghijk", 10) == "abcdefghijk"
    assert formatting.short_id("abcdefghijkl", 10) == "abcdefghij…"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("selection", "selection"),
        ("episodes", "episodes"),
        ("episodes?outcome=failure&reward=0.5..", "episodes with outcome failure and reward ≥ 0.5"),
        ("2 selected of failures?class=timeout", "2 selected of failures with failure class timeout"),
        ("episodes?time=24h", "episodes, last 24 hours"),
        ("episodes?attr=region%3D&attr=a%3Db", "episodes with attribute region with any value and attribute a=b"),
        ("episodes?q=slow+tool&agent=a", "episodes with agent a and the words “slow tool”"),
    ],
)
def test_an_address_is_said_in_words(source: str, text: str) -> None:
    assert source_text(source, "UTC") == text
