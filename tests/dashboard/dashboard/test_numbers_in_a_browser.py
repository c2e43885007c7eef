"""The page Numbers in a real browser: a bar, a point and a row open exactly the episodes behind them."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, expect

from spanloop.dashboard.queries import lists
from spanloop.dashboard.view_models.filters import parse_filters
from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry

from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .dashboard_learning import seed_learning, seed_learning_control
from .dashboard_seeding import seed_nameless
from .test_login_in_a_browser import chromium
from .test_service import dashboard, needs_chromium
from .test_tasks_in_a_browser import READY_MS, Person

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
TOML = '[prices]\ncurrency = "EUR"\n[[prices.models]]\nmodel = "*"\ninput = 500.0\noutput = 2000.0\n'


@pytest.fixture(scope="module")
def world(
    clickhouse: Address, databases: ReusedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Browser, Store]]:
    """A dashboard over a trained agent and a nameless one, with a price of every model."""
    address = replace(clickhouse, database=databases.take())
    directory = DataDir(tmp_path_factory.mktemp("numbers") / "data").open()
    (directory.path / "spanloop.toml").write_text(TOML)
    with Store(address) as store, pytest.MonkeyPatch.context() as patch:
        seed_nameless(store)
        seed_learning(store)
        seed_learning_control(directory, store, tmp_path_factory.mktemp("folders"))
        Registry(directory, clock=lambda: utc_now() - timedelta(hours=10)).record_deployment("demo@v2")
        patch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
        with dashboard(directory) as (url, _), chromium() as browser:
            yield url, browser, store


@pytest.fixture
def person(world: tuple[str, Browser, Store]) -> Iterator[Person]:
    url, browser, _ = world
    context = browser.new_context(viewport={"width": 1440, "height": 900}, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(READY_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield Person(page, url)
    context.close()
    assert errors == []


def shown(person: Person, store: Store) -> set[str]:
    """Return the ids of the list of episodes that is open, after a look that its address says the same."""
    expect(person.page.get_by_role("heading", name="Episodes")).to_be_visible()
    person.rows().first.wait_for()
    ids = {row.get_attribute("data-id") or "" for row in person.rows().all()}
    filters = parse_filters(person.query, now=utc_now(), zone="Europe/Berlin")
    listed = lists.fetch_episodes(store, filters, "", None)
    assert len(ids) == min(listed.total, 100)
    return set(listed.rows["episode_id"].to_list())


def test_a_bar_opens_exactly_the_episodes_behind_it(person: Person, world: tuple[str, Browser, Store]) -> None:
    person.open("numbers?view=Tokens+and+cost&outcome=failure&by=model")
    bar = person.page.locator("svg.marks .mark-rect.role-mark path").last
    person.see("numbers-cost")
    person.click(bar)
    start, end = (f"parseDateTime64BestEffort('{each}', 9, 'UTC')" for each in person.query["time"][0].split(".."))
    rows = world[2].connection.query(
        "SELECT episode_id FROM episodes FINAL WHERE NOT is_deleted AND outcome = 'failure' "
        f"AND started_at >= {start} AND started_at < {end}",
        doing="counting",
    )
    assert shown(person, world[2]) == set(rows["episode_id"].to_list()) != set()


def test_a_row_opens_the_failed_episodes_of_a_class(person: Person, world: tuple[str, Browser, Store]) -> None:
    person.open("numbers?view=Errors+over+time&by=class")
    expect(person.page.get_by_text("● demo@v2")).to_be_visible()
    person.see("numbers-errors")
    labels = person.page.locator("svg.marks .role-axis-label").first.locator("text").all_text_contents()
    assert re.fullmatch(r"\d\d:\d\d(:\d\d)?2\d{3}-\d\d-\d\d|\d\d-\d\d", "".join(labels[0].split())), labels
    name = person.rows().first.locator("td").first.inner_text()
    person.click(person.rows().first)
    rows = world[2].connection.query(
        "SELECT episode_id FROM episodes FINAL "
        "WHERE NOT is_deleted AND outcome = 'failure' AND error_class = {name:String}",
        doing="counting",
        parameters={"name": name},
    )
    assert shown(person, world[2]) == set(rows["episode_id"].to_list()) != set()


def test_a_change_of_a_filter_keeps_the_view(person: Person) -> None:
    person.open("numbers?view=Wasted+by+failures")
    person.see("numbers-wasted")
    person.click(person.page.get_by_role("button", name="Failed"))
    assert person.query == {"outcome": ["failure"], "view": ["Wasted by failures"]}
    expect(person.page.get_by_role("radio", name="Wasted by failures")).to_be_checked()
    person.open("numbers?by=model")
    person.see("numbers-latency")
    person.page.emulate_media(color_scheme="dark")
    person.open("numbers?view=Errors+over+time")
    person.see("numbers-dark")
    person.page.set_viewport_size({"width": 420, "height": 900})
    person.open("numbers?view=Tokens+and+cost")
    person.see("numbers-narrow")
