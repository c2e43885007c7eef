"""Collecting data sets in a real browser, over episodes that the pipeline converted: clicks are counted."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from zipfile import ZipFile

import pytest
from playwright.sync_api import Browser, expect

from spanloop.foundation.keys.audit import AuditLog
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.data_sets import add_to_data_set, fetch_data_sets, fetch_members, find_data_set
from spanloop.training.evaluations.evaluation_api import EvaluationApi
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.stored_spec import EvaluationSpec

from ...converters.converters.converters_world import OPENING, answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from ...databases import ReusedDatabases
from ...training.gateway_stand_in import gateway_stand_in
from ..urls import clickhouse_url
from .dashboard_seeding import model_folder
from .test_login_in_a_browser import chromium
from .test_service import dashboard, needs_chromium
from .test_tasks_in_a_browser import READY_MS, VIEWPORT, Person

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
FAILED = 3


@pytest.fixture(scope="module")
def shop(
    clickhouse: Address, databases: ReusedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Browser, Store, DataDir]]:
    """A dashboard over five episodes, of which three called a tool wrongly and failed by their score."""
    address = replace(clickhouse, database=databases.take())
    directory = DataDir(tmp_path_factory.mktemp("collecting") / "data").open()
    connection = Connection(address)
    with Store(address) as store:
        feed = Feed(store, connection)
        for number in range(5):
            trace, call = trace_id(f"shop {number}"), asks(f"c{number}", arguments={"limit": number})
            result = "Error: missing required argument 'query'" if number < FAILED else "42"
            feed.world.call(OPENING, call, trace=trace)
            feed.world.tool(f"c{number}", result, trace=trace)
            state = (*OPENING, call, answers(f"c{number}", result))
            feed.world.call(state, text("assistant", "It rains in Paris."), trace=trace)
            feed.world.score(0.0 if number < FAILED else 1.0, trace_id=trace)
        feed.send()
        convert(store)
        Registry(directory).add("tiny", model_folder(tmp_path_factory.mktemp("models") / "tiny"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
            with dashboard(directory) as (url, _), chromium() as browser:
                yield url, browser, store, directory
    connection.close()


@pytest.fixture
def person(shop: tuple[str, Browser, Store, DataDir]) -> Iterator[Person]:
    url, browser, _, _ = shop
    context = browser.new_context(viewport=VIEWPORT, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(READY_MS)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield Person(page, url)
    context.close()
    assert errors == []


def test_a_filter_is_a_data_set_in_3_clicks(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, directory = shop
    person.open("episodes")
    person.click(person.page.get_by_text("Failed", exact=True))
    expect(person.page.get_by_text(f"{FAILED} episodes")).to_be_visible()
    person.click(person.page.get_by_role("button", name="Add to data set"))
    expect(person.page.get_by_text(f"Adds episodes with outcome failure ({FAILED}).")).to_be_visible()
    person.click(person.page.get_by_role("button", name="Add", exact=True))
    expect(person.page.get_by_text(f"{FAILED} added. first@v1 has {FAILED} episodes.")).to_be_visible()
    assert person.actions == 3
    person.see("collected")
    members = fetch_members(store, find_data_set(store, "first@v1"))
    assert set(members["episode_id"]) == {trace_id(f"shop {number}") for number in range(FAILED)}
    assert find_data_set(store, "first").source == "episodes?outcome=failure"
    entry = AuditLog(directory).read()[-1]
    assert (entry.action, entry.object, entry.result) == ("add to data set", "first", "ok")


def test_selected_rows_are_the_next_version(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, _ = shop
    person.open("episodes?outcome=success")
    episode = person.rows().first.get_attribute("data-id") or ""
    before = len(fetch_data_sets(store))
    person.click(person.rows().first.locator("input"))
    person.click(person.page.get_by_role("button", name="Add to data set"))
    expect(person.page.get_by_text("Adds 1 selected episode.")).to_be_visible()
    person.click(person.page.get_by_role("button", name="Add", exact=True))
    expect(person.page.get_by_text("1 added.")).to_be_visible()
    newest = fetch_data_sets(store)[0]
    assert len(fetch_data_sets(store)) == before + 1
    assert newest.source == "1 selected of episodes?outcome=success"
    assert episode in fetch_members(store, newest)["episode_id"].to_list()


def test_failures_collect_their_episodes(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, _ = shop
    person.open("failures")
    person.click(person.page.get_by_role("tab", name="One by one"))
    person.click(person.page.get_by_role("button", name="Add to data set"))
    combobox = person.page.get_by_role("dialog").get_by_role("combobox")
    combobox.fill("wrong-calls")
    combobox.press("Enter")
    person.settle()
    person.click(person.page.get_by_role("button", name="Add", exact=True))
    expect(person.page.get_by_text(f"wrong-calls@v1 has {FAILED} episodes.")).to_be_visible()
    assert find_data_set(store, "wrong-calls").episodes == FAILED
    person.open("failures")
    person.click(person.page.get_by_role("tab", name="One by one"))
    person.click(person.page.get_by_role("table", name="failures").locator("tbody input").first)
    person.click(person.page.get_by_role("button", name="Add to data set"))
    person.click(person.page.get_by_role("button", name="Add", exact=True))
    expect(person.page.get_by_text("1 already_in_data_set")).to_be_visible()


def test_a_version_is_shown_exported_and_trained_on(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, directory = shop
    data_set = fetch_data_sets(store)[-1]
    person.open("data_sets")
    person.click(person.page.get_by_text(data_set.reference))
    for words in ("Composition", "Leakage", "No evaluation shares a task", "can be trained on", "invalid_arguments"):
        expect(person.page.get_by_text(words).first).to_be_visible()
    person.see("data-set")
    person.click(person.page.get_by_role("button", name="Export"))
    expect(person.page.get_by_text(f"dataset export {data_set.reference} openai FOLDER")).to_be_visible()
    person.click(person.page.get_by_role("button", name="Make files"))
    with person.page.expect_download() as waiting:
        person.page.get_by_role("button", name="Download").click()
    with ZipFile(waiting.value.path()) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["query"] == {"data_set": data_set.reference}
    person.page.keyboard.press("Escape")
    person.settle()
    person.click(person.page.get_by_role("button", name="Train"))
    expect(person.page.get_by_text(f"episodes of {data_set.reference}.")).to_be_visible()
    person.click(person.page.get_by_role("button", name="All settings"))
    expect(person.page.get_by_role("heading", name="Jobs")).to_be_visible()
    person.click(person.page.get_by_text("Episodes and other settings"))
    expect(person.page.get_by_role("combobox", name="Data set")).to_have_value(data_set.reference)
    person.click(person.page.get_by_role("button", name="Start it"))
    expect(person.page.get_by_role("heading", name="Job", exact=True)).to_be_visible()
    (job,) = JobApi(directory).list()
    assert job.spec.episodes.data_set == data_set.reference


def test_a_version_is_evaluated_on_a_data_sets_tasks_in_2_clicks(
    person: Person, shop: tuple[str, Browser, Store, DataDir]
) -> None:
    _, _, store, directory = shop
    data_set = add_to_data_set(
        store, "asked", [trace_id(f"shop {number}") for number in range(5)], created_by="ann", source="selection"
    ).data_set.reference
    person.open(f"data_sets?set={data_set}")
    person.click(person.page.get_by_role("button", name="Evaluate"))
    expect(person.page.get_by_text("No file says how the agent attempts tasks.")).to_be_visible()
    (directory.path / "spanloop.toml").write_text(
        f'[evaluation]\ntasks = "none.jsonl"\nagent = "{sys.executable} -V"\n'
    )
    person.open(f"data_sets?set={data_set}")
    person.click(person.page.get_by_role("button", name="Evaluate"))
    expect(person.page.get_by_text("does not run").first).to_be_visible()
    with gateway_stand_in(directory):
        person.open(f"data_sets?set={data_set}")
        person.click(person.page.get_by_role("button", name="Evaluate"))
        dialog = person.page.get_by_role("dialog")
        expect(dialog.get_by_text(f"1 from data set {data_set}")).to_be_visible()
        expect(dialog.get_by_text(f"{sys.executable} -V")).to_be_visible()
        person.see("evaluation-plan")
        person.click(dialog.get_by_role("button", name="Start it"))
        expect(person.page.get_by_role("heading", name="Job", exact=True)).to_be_visible()
        assert person.actions == 2
    person.see("evaluation-job")
    expect(person.page.get_by_text("no attempt yet")).to_be_visible()
    (job,) = EvaluationApi(directory).list()
    assert job.spec == EvaluationSpec(versions=("tiny@v1",), data_set=data_set)
    entry = AuditLog(directory).read()[-1]
    assert (entry.action, entry.object, entry.detail) == ("evaluate version", "tiny@v1", job.id)


def test_a_data_set_is_deleted_on_its_page(person: Person, shop: tuple[str, Browser, Store, DataDir]) -> None:
    _, _, store, directory = shop
    add_to_data_set(store, "mistaken", [trace_id("shop 0")], created_by="ann", source="selection")
    others = len(fetch_data_sets(store)) - 1
    person.open("data_sets?set=mistaken@v1")
    person.click(person.page.get_by_role("button", name="Delete"))
    person.see("data-set-deletion")
    person.click(person.page.get_by_role("button", name="Delete all versions"))
    expect(person.page.get_by_role("heading", name="Data sets")).to_be_visible()
    expect(person.page.get_by_text("mistaken")).to_have_count(0)
    assert len(fetch_data_sets(store)) == others
    entry = AuditLog(directory).read()[-1]
    assert (entry.action, entry.object, entry.detail) == ("delete data set", "mistaken", "1 versions")
