"""Judging by keyboard in a real browser, over episodes that the pipeline converted: keys and clicks are counted."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect

from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.judgements import fetch_judgements
from spanloop.store.scores import Score, add_scores

from ...converters.converters.converters_world import OPENING, answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .test_login_in_a_browser import chromium
from .test_service import dashboard, needs_chromium
from .test_tasks_in_a_browser import READY_MS, Person

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
EPISODES = 6


@pytest.fixture(scope="module")
def shop(
    clickhouse: Address, databases: ReusedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Browser, Store, DataDir]]:
    """A dashboard over episodes of which each called a tool wrongly and failed by its score; a user rated the first."""
    address = replace(clickhouse, database=databases.take())
    directory = DataDir(tmp_path_factory.mktemp("judging") / "data").open()
    connection = Connection(address)
    with Store(address) as store:
        feed = Feed(store, connection)
        for number in range(EPISODES):
            trace = trace_id(f"shop {number}")
            call = asks(f"c{number}", arguments={"limit": number})
            error = "Error: missing required argument 'query'"
            feed.world.call(OPENING, call, trace=trace)
            feed.world.tool(f"c{number}", error, trace=trace)
            state = (*OPENING, call, answers(f"c{number}", error))
            feed.world.call(state, text("assistant", "It rains in Paris."), trace=trace)
            feed.world.score(0.0, trace_id=trace)
        feed.send()
        rating = Score(
            name="user_rating", value=0.2, comment="wrong city", source="user 7", trace_id=trace_id("shop 0")
        )
        add_scores(store, [rating])
        convert(store)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
            with dashboard(directory) as (url, _), chromium() as browser:
                yield url, browser, store, directory
    connection.close()


@pytest.fixture
def person(shop: tuple[str, Browser, Store, DataDir]) -> Iterator[Person]:
    url, browser, _, _ = shop
    context = browser.new_context(viewport={"width": 1440, "height": 900}, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(READY_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield Person(page, url)
    context.close()
    assert errors == []


def key(person: Person, name: str) -> None:
    """Press a key of the judging bar, once the bar is drawn."""
    person.page.locator(".judge-host kbd").first.wait_for()
    person.page.keyboard.press(name)
    person.actions += 1
    person.settle()


def outcome(store: Store, episode_id: str) -> tuple[str, str]:
    convert(store)
    row = store.query("dashboard_episode", episode_id=episode_id).row(0, named=True)
    return row["outcome"], row["fault_owner"]


def test_an_episode_is_marked_in_1_key(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, directory = shop
    episode = trace_id("shop 0")
    assert outcome(store, episode) == ("failure", "policy")
    person.open(f"episodes?episode={episode}")
    expect(person.page.get_by_text("wrong city")).to_be_visible()
    key(person, "g")
    assert person.actions == 1
    expect(person.page.get_by_role("button", name="Take back")).to_be_visible()
    pending = person.page.get_by_text("counts after the next conversion")
    expect(pending).to_be_visible()
    assert outcome(store, episode) == ("success", "")
    expect(pending).to_be_hidden()
    entry = AuditLog(directory).read()[-1]
    assert (entry.action, entry.object, entry.result) == ("judge", f"{episode} the episode", "ok")
    person.open(f"episodes?episode={episode}")
    person.see("judged-episode")
    person.click(person.page.get_by_role("button", name="Take back"))
    assert outcome(store, episode) == ("failure", "policy")


def test_the_chosen_row_of_the_list_is_marked_in_2_keys(
    person: Person, shop: tuple[str, Browser, Store, DataDir]
) -> None:
    _, _, store, _ = shop
    person.open("episodes")
    episode = person.rows().first.get_attribute("data-id") or ""
    person.press("ArrowDown", "b")
    assert person.actions == 2
    expect(person.rows().first).to_contain_text("bad")
    (judgement,) = fetch_judgements(store, episode_ids=[episode]).to_dicts()
    assert (judgement["verdict"], judgement["scope"]) == ("bad", "episode")


def test_not_the_policys_fault_in_2_clicks(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, _ = shop
    episode = trace_id("shop 5")
    person.open(f"episodes?episode={episode}")
    person.click(person.page.get_by_text("Not the policy's fault"))
    person.click(person.page.get_by_role("button", name="environment"))
    assert person.actions == 2
    assert outcome(store, episode) == ("failure", "environment")
    person.open("failures?rule=violated_schema")
    expect(person.page.get_by_text("disagrees").first).to_be_visible()
    person.see("rule-and-people")


def test_reward_and_comment_are_saved_once(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, _ = shop
    episode = trace_id("shop 4")
    person.open(f"episodes?episode={episode}")
    person.click(person.page.get_by_text("Say more"))
    person.page.get_by_label("Reward").fill("0.25")
    person.page.get_by_label("Comment").fill("half of it")
    person.page.keyboard.press("Tab")
    person.settle()
    person.click(person.page.get_by_role("button", name="Save judgement"))
    expect(person.page.get_by_text("reward 0.25 · “half of it”")).to_be_visible()
    expect(person.page.get_by_label("Comment")).to_have_value("")
    (judgement,) = fetch_judgements(store, episode_ids=[episode]).to_dicts()
    assert (judgement["number"], judgement["verdict"], judgement["comment"]) == (0.25, "", "half of it")
    convert(store)
    assert store.query("dashboard_episode", episode_id=episode)["reward"].to_list() == [0.25]


def test_a_filter_is_judged_one_after_another(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, _ = shop
    person.open("episodes?judged=no&queue=3&seed=7")
    left = person.page.locator(".judge-host .left")
    expect(left).to_have_text("3 of 3 left")
    expect(person.page.get_by_text("rule violated_schema").first).to_be_visible()
    expect(person.page.get_by_text("It rains in Paris.").first).to_be_visible()
    person.see("queue")
    key(person, "g")
    expect(left).to_have_text("2 of 3 left")
    second = person.query["at"]
    key(person, "s")
    assert person.query["at"] != second
    key(person, "b")
    expect(left).to_have_text("1 of 3 left")
    assert person.query["at"] == second
    key(person, "p")
    expect(person.page.get_by_role("button", name="Take back")).to_be_visible()
    key(person, "n")
    assert person.query["at"] == second
    key(person, "b")
    expect(person.page.get_by_text("All 3 episodes of the queue are judged.")).to_be_visible()
    verdicts = fetch_judgements(store)["verdict"].to_list()[:3]
    assert verdicts == ["bad", "bad", "good"]
