"""Figures of stored episodes, and the dashboard's filters that show the same episodes."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs

import polars as pl
import pytest

from spanloop.dashboard.view_models.filters import parse_filters
from spanloop.foundation.settings import Price, Prices
from spanloop.store import Store
from spanloop.training.alerts.conditions import Threshold, parse_condition
from spanloop.training.alerts.measurements import Measurement, measure

from ..training_seeding import REVISION, insert

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def episode(number: int, *, minutes_ago: float, seconds: float = 1.0, **columns: object) -> dict[str, object]:
    """One episode that ended so long ago."""
    started = NOW - timedelta(minutes=minutes_ago, seconds=seconds)
    return {
        "episode_id": f"e{number}",
        "revision": REVISION,
        "agent_name": "planner",
        "service_name": "shop",
        "outcome": "success",
        "reward": None,
        "started_at": started,
        "duration_ns": int(seconds * 1e9),
        **columns,
    }


@pytest.fixture
def seeded(store: Store) -> Store:
    rows = [
        episode(0, minutes_ago=200, outcome="failure", reward=0.0),
        episode(1, minutes_ago=50, outcome="failure", reward=0.25, seconds=5),
        episode(2, minutes_ago=30, reward=0.75, seconds=7),
        episode(3, minutes_ago=10, outcome="unknown", seconds=9),
        # It began long before the window and ended in it.
        episode(4, minutes_ago=5, seconds=7200, agent_name=""),
    ]
    insert(store, "episodes", rows)
    failures: list[dict[str, object]] = [
        {
            "failure_id": f"e{number}/0",
            "episode_id": f"e{number}",
            "revision": REVISION,
            "error_class": "timeout",
            "occurred_at": NOW - timedelta(minutes=minutes_ago),
        }
        for number, minutes_ago in ((0, 200), (2, 30))
    ]
    insert(store, "failures", failures)
    return store


def step(episode: int, *, model: str, tokens: tuple[int, int], minutes_ago: float = 30.0) -> dict[str, object]:
    return {
        "episode_id": f"e{episode}",
        "revision": REVISION,
        "step": tokens[0],
        "model": model,
        "input_tokens": tokens[0],
        "output_tokens": tokens[1],
        "started_at": NOW - timedelta(minutes=minutes_ago),
    }


@pytest.mark.parametrize(
    ("condition", "detail", "holds"),
    [
        ("cost above 4", "cost at least 4.5 EUR of 4 episodes; no price for house: 1 call, 7 tokens", True),
        ("cost above 5", "cost at least 4.5 EUR of 4 episodes; no price for house: 1 call, 7 tokens", False),
        ("cost below 5", "cost at least 4.5 EUR of 4 episodes; no price for house: 1 call, 7 tokens", False),
        ("cost of shop above 0", "cost not known of 1 episode; no price for house: 1 call, 7 tokens", False),
        ("cost of planner below 5", "cost 4.5 EUR of 3 episodes", True),
        ("cost of nobody above 0", "no episode", False),
    ],
)
def test_a_cost_is_known_or_a_least_cost(seeded: Store, *, condition: str, detail: str, holds: bool) -> None:
    steps = [
        step(0, model="gpt-1", tokens=(9_000_000, 0), minutes_ago=200),
        step(1, model="gpt-1", tokens=(1_000_000, 1_000_000)),
        step(2, model="gpt-1", tokens=(1_500_000, 0)),
        step(4, model="house", tokens=(7, 0)),
    ]
    seeded.insert("transition_rows", pl.DataFrame(steps, schema=seeded.schema("transition_rows")))
    prices = Prices(currency="EUR", models=(Price(model="gpt-*", input=1.0, output=2.0),))
    parsed = parse_condition(condition)
    assert isinstance(parsed, Threshold)
    measurement = measure(seeded, parsed, now=NOW, prices=prices)
    assert (measurement.detail, measurement.holds) == (detail, holds)


def measured(store: Store, text: str, now: datetime = NOW) -> Measurement:
    condition = parse_condition(text)
    assert isinstance(condition, Threshold)
    return measure(store, condition, now=now)


@pytest.mark.parametrize(
    ("condition", "detail", "holds"),
    [
        ("failures above 20%", "failures 25.0% of 4 episodes", True),
        ("failures above 25%", "failures 25.0% of 4 episodes", False),
        ("failures below 30%", "failures 25.0% of 4 episodes", True),
        ("failures above 20% over 1h with at least 5 episodes", "failures 25.0% of 4 episodes", False),
        ("failures of planner above 30%", "failures 33.3% of 3 episodes", True),
        ("failures of shop above 30%", "failures 0.0% of 1 episode", False),
        ("failures of nobody above 0%", "no episode", False),
        ("timeout above 20%", "timeout 25.0% of 4 episodes", True),
        ("timeout of planner above 20% over 1d", "timeout 50.0% of 4 episodes", True),
        ("timeout of nobody above 20%", "no episode", False),
        ("reward below 0.6", "reward 0.5 of 2 rewarded episodes", True),
        ("reward below 0.6 over 20m", "no rewarded episode", False),
        ("latency p50 of planner above 6s", "latency p50 7s of 3 episodes", True),
        ("latency above 1m", "latency p95 7,200s of 4 episodes", True),
    ],
)
def test_a_figure_is_that_of_the_episodes_that_ended_in_the_window(
    seeded: Store, condition: str, detail: str, *, holds: bool
) -> None:
    measurement = measured(seeded, condition)
    assert (measurement.detail, measurement.holds) == (detail, holds)


@pytest.mark.parametrize(
    ("condition", "page", "values"),
    [
        ("failures of planner above 20%", "episodes", {"agent": ("planner",), "outcome": ("failure",)}),
        ("timeout above 20%", "failures", {"class": ("timeout",)}),
        ("reward below 0.6", "episodes", {"reward": ("..0.6",)}),
        ("latency above 500ms", "episodes", {"duration": ("0.5..",)}),
    ],
)
def test_a_link_is_an_address_with_filters_that_the_dashboard_knows(
    seeded: Store, condition: str, page: str, values: dict[str, tuple[str, ...]]
) -> None:
    path, _, query = measured(seeded, condition).link.partition("?")
    filters = parse_filters(parse_qs(query), now=NOW, zone="UTC")
    assert (path, filters.problems, filters.values) == (page, (), values)
    assert filters.time.start_s <= (NOW - timedelta(hours=1)).timestamp()
    assert NOW.timestamp() <= filters.time.end_s <= (NOW + timedelta(minutes=2)).timestamp()


def test_the_link_shows_the_episode_that_began_before_the_window(seeded: Store) -> None:
    query = parse_qs(measured(seeded, "latency above 1m").link.partition("?")[2])
    start_s = parse_filters(query, now=NOW, zone="UTC").time.start_s
    assert start_s <= (NOW - timedelta(minutes=5, seconds=7200)).timestamp()
