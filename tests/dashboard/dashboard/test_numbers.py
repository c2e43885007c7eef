"""Latency, cost, errors and waste of four episodes that can be counted by hand; each row's address has its episodes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from spanloop.dashboard.queries import lists, numbers
from spanloop.dashboard.view_models.filters import Filters, TimeRange
from spanloop.foundation.settings import Prices
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.store.costs import unpriced_models

from ...databases import ReusedDatabases
from .numbers_seeding import PRICES, START, seed_numbers

FIRST_DAY = Filters(TimeRange(int(START.timestamp()), int((START + timedelta(hours=1)).timestamp())), "first")


@pytest.fixture(scope="module")
def numbered(clickhouse: Address, databases: ReusedDatabases) -> Iterator[Store]:
    """A store with the four episodes, which tests only read."""
    with Store(replace(clickhouse, database=databases.take())) as store:
        seed_numbers(store)
        yield store


def episodes(store: Store, filters: Filters, name: str, value: str) -> set[str]:
    rows = lists.fetch_episodes(store, filters.with_value(name, value), "", None).rows
    return set(rows["episode_id"].to_list())


def test_latency_of_models_is_that_of_their_calls(numbered: Store) -> None:
    rows = {row["value"]: row for row in numbers.fetch_latency(numbered, Filters(), "model").iter_rows(named=True)}
    assert (rows["gpt-1"]["calls"], rows["gpt-1"]["p50"], rows["gpt-1"]["p99"]) == (4, 2e9, 3e9)
    assert (rows["gpt-1"]["first_tokens"], rows["gpt-1"]["first_p95"]) == (2, 400e6)
    assert (rows["house"]["calls"], rows["house"]["first_tokens"], rows["house"]["first_p50"]) == (2, 0, None)


def test_latency_of_agents_is_that_of_their_episodes(numbered: Store) -> None:
    rows = {row["value"]: row for row in numbers.fetch_latency(numbered, Filters(), "agent").iter_rows(named=True)}
    assert (rows["writer"]["calls"], rows["writer"]["p50"], rows["writer"]["p95"]) == (2, 30e9, 30e9)
    assert (rows["planner"]["first_tokens"], rows["writer"]["first_tokens"]) == (2, 0)
    assert rows["writer"]["first_p50"] is None, "what was not recorded is not zero"


def test_a_tool_call_that_no_span_measured_has_no_duration(numbered: Store) -> None:
    row = numbers.fetch_latency(numbered, Filters(), "tool").row(0, named=True)
    assert (row["value"], row["calls"], row["measured"], row["p99"]) == ("search", 3, 2, 150e6)


def test_a_tool_call_of_an_earlier_converter_is_counted(clickhouse: Address, databases: ReusedDatabases) -> None:
    with Store(replace(clickhouse, database=databases.take())) as store:
        seed_numbers(store, has_results=False)
        row = numbers.fetch_latency(store, Filters(), "tool").row(0, named=True)
    assert (row["value"], row["calls"], row["measured"], row["p50"]) == ("search", 3, 0, None)


def test_cost_follows_the_price_of_the_day_and_of_cached_tokens(numbered: Store) -> None:
    usage = numbers.fetch_usage(numbered, Filters(), PRICES, "agent")
    rows = {row["value"]: row for row in usage.rows.iter_rows(named=True)}
    first_day, second_day = (0.6 + 0.2 + 0.2) + 1.0, 2.0
    assert rows["planner"]["cost"] == pytest.approx(first_day + second_day)
    assert (rows["writer"]["cost"], rows["writer"]["uncounted_calls"]) == (0.0, 1)
    assert (rows["writer"]["unpriced_calls"], rows["writer"]["unpriced_tokens"]) == (2, 8_500)
    assert list(map(str, unpriced_models(usage.priced))) == ["no price for house: 2 calls, 8,500 tokens"]


def test_without_prices_there_is_no_cost_and_not_zero(numbered: Store) -> None:
    rows = numbers.fetch_usage(numbered, Filters(), Prices(), "model").rows
    assert rows["cost"].to_list() == [None, None]
    assert rows["calls"].sum() == 6


def test_cost_over_time_is_the_cost_of_all(numbered: Store) -> None:
    days = numbers.fetch_cost_over_time(numbered, Filters(), PRICES, 86_400)
    assert days["cost"].to_list() == pytest.approx([2.0, 2.0])
    assert numbers.fetch_time_span(numbered, Filters()) == 86_400


def test_error_rates_of_owners_are_shares_of_all_episodes(numbered: Store) -> None:
    rows = numbers.fetch_errors_over_time(numbered, Filters(), "owner", 86_400)
    failed = rows.filter(rows["failures"] > 0).sort("bucket")
    assert failed.select("value", "episodes", "failures").rows() == [("policy", 2, 1), ("tool", 2, 1)]
    assert failed["at"].to_list() == [START, START + timedelta(days=1)]  # not at the start of their days
    agents = numbers.fetch_errors_over_time(numbered, Filters(), "agent", 7 * 86_400)
    assert sorted(agents.select("value", "episodes", "failures").rows()) == [("planner", 2, 0), ("writer", 2, 2)]


def test_waste_counts_episodes_that_did_not_recover(numbered: Store) -> None:
    rows = {row["value"]: row for row in numbers.fetch_wasted(numbered, Filters(), PRICES).iter_rows(named=True)}
    assert (rows["wrong"]["episodes"], rows["wrong"]["duration_ns"]) == (2, 40 * 10**9)
    assert (rows["slow"]["episodes"], rows["slow"]["duration_ns"]) == (1, 30 * 10**9)
    assert (rows["wrong"]["message"], rows["wrong"]["fault_owner"]) == ("it was wrong", "policy")
    assert (rows["wrong"]["cost"], rows["slow"]["cost"]) == (0.0, None)


@pytest.mark.parametrize("filters", [Filters(), FIRST_DAY], ids=["all time", "a day"])
def test_the_address_of_a_row_has_exactly_its_episodes(numbered: Store, filters: Filters) -> None:
    is_all = filters == Filters()
    assert episodes(numbered, filters, "called", "house") == ({"b", "d"} if is_all else {"b"})
    assert episodes(numbered, filters, "model", "house") == ({"d"} if is_all else set())
    assert episodes(numbered, filters, "fingerprint", "slow") == ({"d"} if is_all else set())
    assert episodes(numbered, filters, "tool", "search") == ({"a", "d"} if is_all else {"a"})
    assert episodes(numbered, filters, "tool", "lookup") == {"b"}, "a tool that no message names"
    assert episodes(numbered, filters, "agent", "writer") == ({"b", "d"} if is_all else {"b"})
    for by, name in (("model", "called"), ("agent", "agent"), ("tool", "tool")):
        for row in numbers.fetch_latency(numbered, filters, by).iter_rows(named=True):
            assert episodes(numbered, filters, name, row["value"])


def test_filters_select_episodes(numbered: Store) -> None:
    failed = Filters(values={"outcome": ("failure",)})
    assert numbers.fetch_latency(numbered, failed, "agent")["value"].to_list() == ["writer"]
    assert numbers.fetch_usage(numbered, failed, PRICES, "model").rows["calls"].sum() == 3
    assert numbers.fetch_wasted(numbered, Filters(values={"outcome": ("success",)}), PRICES).is_empty()
    only = numbers.fetch_wasted(numbered, Filters(values={"fingerprint": ("slow",)}), PRICES)
    assert set(only["value"]) == {"slow", "wrong"}
