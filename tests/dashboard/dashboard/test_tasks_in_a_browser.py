"""Daily tasks in a real browser, with a stopwatch's other half: clicks and keys are counted, and limited.

One dashboard over one store serves every task: seeded rows of an agent, and spans of an agent that sets no name.
``SPANLOOP_SCREENSHOTS=folder`` keeps screenshots.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Error, Locator, Page, ViewportSize, expect

from spanloop.demo.tiny_model import build_tiny_model
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi

from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .dashboard_driver import PAGES
from .dashboard_learning import LEARNED, seed_learning, seed_learning_control
from .dashboard_seeding import seed_nameless
from .team_seeding import SESSION, insert_team
from .test_login_in_a_browser import chromium
from .test_service import dashboard, needs_chromium

pytestmark = [needs_chromium, pytest.mark.timeout(300)]
READY_MS = 60_000
VIEWPORT: Final[ViewportSize] = {"width": 1440, "height": 900}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
AXE = Path(__file__).parent / "axe"
NO_REGISTRY = ("ENOTFOUND", "ETARGET", "E404", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT")
VIOLATIONS = """async (rules) => {
  const checked = await axe.run(document, { resultTypes: ["violations"], ...rules });
  return checked.violations.filter((each) => ["serious", "critical"].includes(each.impact)).flatMap((each) =>
    each.nodes.map((node) => ({
      rule: each.id,
      // A path through a shadow root is a list in the list: only our components have one.
      isOurs: node.target.some(Array.isArray)
        || Boolean(document.querySelector(node.target[0])?.closest("[data-testid=stHtml]")),
      html: node.html.slice(0, 160),
      why: node.failureSummary,
    })));
}"""
PLACES: Final = """(() => {
  window.places = [];
  const find = (root) => {
    const roots = [root, ...[...root.querySelectorAll("*")].map((each) => each.shadowRoot).filter((each) => each)];
    return roots.map((each) => each.querySelector("TARGET")).find((each) => each?.getBoundingClientRect().height);
  };
  const look = () => {
    const target = find(document);
    if (target) {
      const { x, y, height } = target.getBoundingClientRect();
      const place = [Math.round(x) + 5, Math.round(y + height / 2)];
      if (`${place}` !== `${window.places.at(-1)}`) window.places.push(place);
    }
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""
"""Notes every place at which the first element that the selector names is drawn, frame by frame."""
BACKGROUNDS: Final[dict[Literal["light", "dark"], str]] = {"light": "rgb(255, 255, 255)", "dark": "rgb(23, 22, 20)"}
COLOURS: Final = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
"""The rules that read colours: the second colour scheme draws the same elements with the same names and roles."""
STREAMLITS = frozenset({"color-contrast"})
"""Rules that Streamlit's own widgets break; no other may join them."""


@dataclass
class Person:
    """Somebody in front of the page, whose clicks and keys are counted."""

    page: Page
    url: str
    actions: int = 0

    def open(self, path: str) -> None:
        self.page.goto(f"{self.url}/{path}")
        self.settle()
        self.actions = 0

    def click(self, target: Locator) -> None:
        target.click()
        self.actions += 1
        self.settle()

    def press(self, *keys: str) -> None:
        # A list's keys work once its filter bar and its table are drawn.
        self.page.get_by_text("+ Filter").wait_for()
        self.rows().first.wait_for()
        for key in keys:
            self.page.keyboard.press(key)
            self.actions += 1
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_timeout(120)
        self.page.wait_for_function(
            "() => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState === 'notRunning'"
            " && document.querySelector('h1') && !document.querySelector('[data-testid=stSkeleton]')",
            timeout=READY_MS,
        )
        self.page.wait_for_timeout(250)

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.page.url).query)

    def rows(self) -> Locator:
        return self.page.locator("tbody tr")

    def see(self, name: str) -> None:
        if folder := os.environ.get("SPANLOOP_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture(scope="module")
def world(
    clickhouse: Address, databases: ReusedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Browser, DataDir]]:
    """The address of one dashboard over a store of a trained agent and a nameless one, a browser, and the data."""
    address = replace(clickhouse, database=databases.take())
    directory = DataDir(tmp_path_factory.mktemp("tasks") / "data").open()
    with Store(address) as store:
        insert_team(store)
        seed_nameless(store)
        seed_learning(store)
        seed_learning_control(directory, store, tmp_path_factory.mktemp("folders"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
        with dashboard(directory) as (url, _), chromium() as browser:
            yield url, browser, directory


@pytest.fixture(scope="module")
def page(world: tuple[str, Browser, DataDir]) -> Page:
    """One page for all tests, whose process has Streamlit's scripts in memory."""
    context = world[1].new_context(viewport=VIEWPORT, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(READY_MS)
    return page


@pytest.fixture
def person(world: tuple[str, Browser, DataDir], page: Page) -> Iterator[Person]:
    """A person who was never here before."""
    errors: list[str] = []

    def note(error: Error) -> None:
        errors.append(str(error))

    page.on("pageerror", note)
    yield Person(page, world[0])
    page.remove_listener("pageerror", note)
    page.evaluate("localStorage.clear(); sessionStorage.clear()")
    page.context.clear_cookies()
    page.set_viewport_size(VIEWPORT)
    page.emulate_media(color_scheme="light")
    page.goto("about:blank")
    assert errors == []


def test_yesterdays_failed_runs_of_one_agent_in_three(person: Person) -> None:
    person.open("episodes")
    person.click(person.page.get_by_role("button", name="Failed"))
    person.click(person.page.get_by_role("button", name="Yesterday", exact=True).first)
    row = person.rows().filter(has_text="bare_loop").first
    row.hover()
    person.click(row.get_by_role("link", name="Only agent bare_loop"))
    assert person.actions == 3
    assert person.query == {"outcome": ["failure"], "time": ["yesterday"], "agent": ["bare_loop"]}
    expect(person.page.locator(".total")).to_have_text("2 episodes")
    person.see("yesterday-failed")
    person.page.go_back()
    person.settle()
    assert person.query == {"outcome": ["failure"], "time": ["yesterday"]}  # one step back, and no more


def test_filters_chosen_before_the_list_is_drawn_again_all_hold(person: Person) -> None:
    person.open("episodes?sort=-started")
    page = person.page
    chosen = [
        page.get_by_role("button", name="Yesterday", exact=True).first,
        page.get_by_role("button", name="Failed"),
        page.get_by_role("link", name="Only agent bare_loop").first,
    ]
    page.evaluate("(elements) => elements.forEach((each) => each.click())", [each.element_handle() for each in chosen])
    person.settle()
    assert person.query == {
        "sort": ["-started"],
        "time": ["yesterday"],
        "outcome": ["failure"],
        "agent": ["bare_loop"],
    }
    expect(page.locator(".total")).to_have_text("2 episodes")


def test_a_list_leaves_out_columns_that_have_no_room(person: Person) -> None:
    page = person.page
    person.open("episodes")
    expect(page.get_by_role("columnheader", name="tokens")).to_be_visible()
    page.set_viewport_size({"width": 900, "height": 900})
    expect(page.get_by_role("columnheader", name="tokens")).to_have_count(0)
    expect(page.get_by_text("Columns (no room for")).to_be_visible()
    for preview in ("input", "output"):
        box = page.get_by_role("columnheader", name=preview).bounding_box()
        assert box is not None
        assert box["width"] >= 100
    person.open("failures")
    boxes = [page.get_by_role("table", name=name).locator("xpath=..").bounding_box() for name in ("groups", "tools")]
    groups, tools = boxes
    assert groups is not None
    assert tools is not None
    assert groups["x"] + groups["width"] <= tools["x"]  # they scroll sideways, each by itself
    for path in ("episodes", "failures"):
        person.open(path)
        wide = page.locator("[data-testid=stMain]").evaluate("(each) => each.scrollWidth - each.clientWidth")
        assert wide <= 0, path


def test_why_one_failed_in_two(person: Person) -> None:
    person.open("episodes?agent=bare_loop&outcome=failure")
    person.click(person.rows().first.locator("td.preview").first)
    assert person.actions <= 2
    expect(person.page.get_by_text("the engine is overloaded").first).to_be_visible()
    expect(person.page.get_by_text("The call failed, so there is no answer.")).to_be_visible()
    assert "Episode" in person.page.title()
    person.page.go_back()
    person.settle()
    assert "episode" not in person.query


def test_two_episodes_are_compared_in_three(person: Person) -> None:
    person.open("episodes")
    first = person.rows().nth(0).get_attribute("data-id") or ""
    person.click(person.rows().nth(0).get_by_role("checkbox"))
    person.click(person.rows().nth(1).get_by_role("checkbox"))
    person.click(person.page.get_by_role("link", name="Compare", exact=True))
    assert person.actions == 3
    expect(person.page.get_by_role("heading", name="Two episodes")).to_be_visible()
    expect(person.page.get_by_role("link", name=f"Episode {first[:10]}")).to_be_visible()
    person.see("two-episodes")


def test_the_tool_that_breaks_most_in_one(person: Person) -> None:
    person.open("")
    person.click(person.page.get_by_role("link", name="Failures"))
    assert person.actions == 1
    tools = person.page.get_by_role("table", name="tools")
    expect(tools.locator("tbody tr").first).to_contain_text("lookup")


def test_numbers_of_the_overview_lead_to_their_rows_and_its_range_stays(person: Person) -> None:
    person.open("")
    person.click(person.page.get_by_text("7 d", exact=True))
    assert person.query == {"range": ["7 d"]}
    person.page.reload()
    person.settle()
    person.see("overview")
    person.click(person.page.locator(".figures a").first)
    assert person.query == {"time": ["7d"]}
    expect(person.page.locator(".total")).to_contain_text("episodes")
    person.page.go_back()
    person.settle()
    assert person.query == {"range": ["7 d"]}


def test_a_trainings_curve_in_two(person: Person) -> None:
    person.open("")
    person.click(person.page.get_by_role("link", name="Evaluations"))
    person.click(
        person.page.get_by_role("radio", name="Training").or_(person.page.get_by_text("Training", exact=True)).first
    )
    assert person.actions == 2
    expect(person.page.locator("[data-testid=stVegaLiteChart]").first).to_be_visible()
    expect(person.page.get_by_text("Success before").first).to_be_visible()


def test_the_traces_behind_a_version_in_two(person: Person) -> None:
    person.open("")
    person.click(person.page.get_by_role("link", name="Models"))
    person.click(person.page.get_by_role("table", name="models").locator("tbody tr").nth(2).locator("td").nth(3))
    assert person.actions == 2
    trace = person.page.get_by_role("table", name="trained_by").locator("tbody a").first
    assert (trace.get_attribute("href") or "").startswith("traces?trace=")
    # What can be done comes before how the version was made.
    serve = person.page.get_by_role("button", name="Serve this version").bounding_box()
    made = person.page.get_by_text("How it was made:").bounding_box()
    assert serve is not None
    assert made is not None
    assert serve["y"] < made["y"]


def test_a_job_on_one_failure_class_in_three(
    person: Person, world: tuple[str, Browser, DataDir], tmp_path: Path
) -> None:
    directory = world[2]
    build_tiny_model(tmp_path / "tiny", training_steps=0)
    for version in LEARNED:  # the plan reads the tokenizer of each
        shutil.copytree(tmp_path / "tiny", Registry(directory).get(version).path, dirs_exist_ok=True)
    person.open("failures")
    person.click(person.page.get_by_role("table", name="groups").get_by_role("cell", name="invalid_arguments").first)
    person.click(person.page.get_by_role("button", name="Train"))
    dialog = person.page.get_by_role("dialog")
    expect(dialog.get_by_role("cell", name="reward_constant").first).to_be_visible()
    person.see("train-on-a-failure-class")
    person.click(dialog.get_by_role("button", name="Start it"))
    assert person.actions == 3
    expect(person.page.get_by_role("heading", name="Job", exact=True)).to_be_visible()
    tasks = JobApi(directory).list()[0].spec.episodes.task_ids
    assert tasks
    assert all(task.startswith("train-") for task in tasks)  # an evaluation has the others


def test_headers_sort_all_rows_and_keys_open_them(person: Person) -> None:
    person.open("episodes")
    header = person.page.get_by_role("columnheader", name="reward")
    header.click(position={"x": 2, "y": 2})  # its edge, too
    person.settle()
    assert person.query == {"sort": ["-reward"]}
    expect(person.page.get_by_role("columnheader", name="reward")).to_have_attribute("aria-sort", "descending")
    person.click(person.page.get_by_role("link", name="Last page"))
    expect(person.page.get_by_role("link", name="Next page")).to_have_count(0)
    person.press("/")
    person.page.keyboard.type("overloaded ENGINE")
    person.press("Enter")
    assert person.query["q"] == ["overloaded ENGINE"]
    expect(person.page.locator("mark").first).to_be_visible()
    first = person.rows().first.get_attribute("data-id")
    person.press("ArrowDown", "Enter")
    assert person.query == {"episode": [first]}


def test_a_span_opens_beside_its_tree_and_the_address_shows_it_again(person: Person) -> None:
    page = person.page
    person.open(f"sessions?conversation={SESSION}")
    person.click(page.get_by_role("link", name="Trace 00000001cc").first)
    person.click(page.get_by_role("treeitem").filter(has_text="search_stock"))
    panel = page.locator(".st-key-span_panel")
    expect(panel.get_by_text("the stock did not answer").first).to_be_visible()
    expect(panel.get_by_text("12345678901234567890")).to_have_count(0)
    assert person.actions == 2
    tree = page.get_by_role("tree")
    tree.press("ArrowUp")
    tree.press("Enter")  # the model call that asked for the tool
    person.settle()
    expect(panel.get_by_text("12345678901234567890")).to_be_visible()  # the digits of its arguments
    span = person.query["span"]
    page.reload()
    person.settle()
    assert person.query["span"] == span
    expect(page.get_by_role("treeitem", selected=True)).to_contain_text("chat small")
    person.see("span-beside-its-tree")
    page.keyboard.press("Escape")
    person.settle()
    expect(panel).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("stock did not answer")
    page.keyboard.press("Enter")
    person.settle()
    assert person.query["find"] == ["stock did not answer"]
    expect(page.get_by_role("treeitem")).to_have_count(5)  # the tool, the call behind it, and the three around them


def test_a_call_between_agents_opens_its_episodes_and_these_their_traces(person: Person) -> None:
    page = person.page
    person.open("numbers?view=Agents&service=desk-shop")
    person.click(page.get_by_role("link", name="researcher called search_stock 2 · 50 % failed"))
    person.see("agents-graph")
    rows = page.get_by_role("table", name="behind").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("failed")
    person.click(rows.first.locator("td").first)
    assert person.actions == 2
    expect(page.get_by_role("treeitem").filter(has_text="search_stock")).to_contain_text("TimeoutError")


def test_the_menu_and_the_link_back_lead_out_of_a_detail_and_leave_its_address(person: Person) -> None:
    page = person.page
    person.open("episodes?agent=bare_loop&outcome=failure")
    filtered = page.url
    person.click(person.rows().first.locator("td.preview").first)
    person.click(page.get_by_text("Rewards", exact=True).first)
    person.click(page.get_by_role("link", name="All episodes"))
    assert page.url == filtered
    person.click(person.rows().first.locator("td.preview").first)
    menu = page.get_by_test_id("stTopNav")
    person.click(menu.get_by_role("link", name="Episodes"))
    assert person.query == {}
    page.reload()
    person.settle()
    expect(page.get_by_role("heading", name="Episodes", exact=True)).to_be_visible()
    person.open("evaluations?view=Training")
    person.see("evaluations-training")
    person.click(menu.get_by_role("link", name="Evaluations"))
    assert person.query == {}
    expect(page.get_by_role("radio", name="Held out")).to_be_checked()
    person.see("evaluations-from-its-menu-entry")


def test_links_are_links_and_columns_are_remembered(person: Person) -> None:
    person.open("episodes")
    link = person.rows().first.get_by_role("link").first
    assert (link.get_attribute("href") or "").startswith("episodes?episode=")
    with person.page.context.expect_page() as opened:
        link.click(button="middle")
    opened.value.close()
    assert person.query == {}
    person.click(person.page.get_by_text("Columns"))
    person.click(person.page.get_by_role("checkbox", name="model"))
    expect(person.page.get_by_role("columnheader", name="model")).to_be_visible()
    person.open("episodes")
    expect(person.page.get_by_role("columnheader", name="model")).to_be_visible()


def test_values_of_a_filter_are_completed_and_a_view_is_saved(person: Person) -> None:
    person.open("episodes")
    person.press("f")
    person.click(person.page.get_by_role("button", name="attribute"))
    person.click(person.page.get_by_role("option", name="gen_ai.request.model"))
    person.click(person.page.get_by_role("option").first)
    (attribute,) = person.query["attr"]
    assert attribute.startswith("gen_ai.request.model=")
    person.press("f")
    person.click(person.page.get_by_role("button", name="attribute", exact=True))
    person.click(person.page.get_by_role("option", name="gen_ai.request.model"))
    person.page.get_by_placeholder("or Enter for any").wait_for()
    person.page.keyboard.press("Enter")
    person.settle()
    assert person.query["attr"] == [attribute, "gen_ai.request.model="]
    expect(person.page.get_by_text("gen_ai.request.model with any value")).to_be_visible()
    person.click(person.page.get_by_role("button", name="Remove attribute gen_ai.request.model with any value"))
    person.click(person.page.get_by_text("Views", exact=True))
    person.page.get_by_label("Name of this view").fill("mine")
    person.click(person.page.get_by_role("button", name="Save"))
    person.open("episodes")
    person.click(person.page.get_by_text("Views", exact=True))
    person.click(person.page.get_by_role("link", name="mine", exact=True))
    assert person.query["attr"] == [attribute]


def test_a_key_counts_once_after_a_list_has_changed(person: Person) -> None:
    person.open("episodes")
    for direction in ("descending", "ascending"):
        person.click(person.page.get_by_role("columnheader", name="took").get_by_role("link"))
        expect(person.page.get_by_role("columnheader", name="took")).to_have_attribute("aria-sort", direction)
    for number in range(2):
        person.press("ArrowDown")
        expect(person.page.locator("tbody tr.active")).to_have_attribute(
            "data-id", person.rows().nth(number).get_attribute("data-id") or ""
        )
    person.click(person.page.get_by_role("button", name="Failed"))
    expect(person.page.get_by_role("button", name="Failed", pressed=True)).to_be_visible()
    expect(person.page.get_by_role("button", name="Remove outcome failure")).to_have_count(0)
    person.press("f")
    expect(person.page.get_by_role("button", name="attribute")).to_be_visible()


@pytest.mark.parametrize(
    ("path", "target", "parameter"),
    [
        ("episodes", "thead th:nth-child(2) a", "sort"),
        ("failures", "tbody tr td.preview", "group"),
        ("traces", "tbody tr td.preview", "trace"),
        ("", ".figures .figure:nth-child(2) a", "outcome"),
        ("", "tbody tr td.preview", "episode"),
    ],
)
def test_what_is_drawn_stays_in_its_place(
    world: tuple[str, Browser, DataDir], page: Page, path: str, target: str, parameter: str
) -> None:
    visit = page.context.new_page()
    visit.set_default_timeout(READY_MS)
    visit.set_viewport_size({"width": 1440, "height": 1400})
    visit.add_init_script(PLACES.replace("TARGET", target))
    person = Person(visit, world[0])
    person.open(path)
    visit.wait_for_function("() => window.places?.length")
    assert len(visit.evaluate("places")) == 1
    # A click at the place of the first sight opens what was seen there.
    visit.reload(wait_until="commit")
    visit.wait_for_function("() => window.places?.length")
    visit.mouse.click(*visit.evaluate("places[0]"))
    visit.wait_for_function("(name) => new URLSearchParams(document.location.search).has(name)", arg=parameter)
    visit.close()


@pytest.fixture(scope="module")
def axe_script(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, as the lock file pins it."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe") / "axe"
    shutil.copytree(AXE, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if completed.returncode and any(sign in completed.stderr for sign in NO_REGISTRY):
        pytest.skip(f"no npm registry that has axe-core can be reached: {completed.stderr.strip()[:300]}")
    assert completed.returncode == 0, completed.stderr
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


class Axe:
    """axe-core on the pages that a person visits, and what it found."""

    def __init__(self, script: str, page: Page) -> None:
        self._script = script
        self._page = page
        self._broken: list[str] = []
        self._others: set[str] = set()

    def check(self, name: str) -> None:
        """Check what the page shows, in both colour schemes."""
        page = self._page
        # What a run of the script may replace is drawn fainter.
        page.wait_for_function("() => !document.querySelector('[data-stale=true]')")
        page.evaluate(self._script)
        for (scheme, background), rules in zip(BACKGROUNDS.items(), ({}, COLOURS), strict=True):
            page.emulate_media(color_scheme=scheme)
            expect(page.get_by_test_id("stApp")).to_have_css("background-color", background)
            page.wait_for_timeout(500)
            for each in page.evaluate(VIOLATIONS, rules):
                if each["isOurs"]:
                    self._broken.append(f"{name}, {scheme}: {each['rule']}: {each['html']}: {each['why']}")
                else:
                    self._others.add(each["rule"])

    def assert_no_violation(self) -> None:
        """Fail on a serious violation of our components, and on one of Streamlit's that is not known."""
        assert self._broken == []
        assert self._others <= STREAMLITS


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_a_title_fits_a_narrow_screen_and_has_no_serious_accessibility_violation(
    person: Person, path: str, request: pytest.FixtureRequest
) -> None:
    page = person.page
    page.set_viewport_size(NARROW)
    person.open(path if path != "overview" else "")
    assert page.title().endswith("· spanloop")
    assert page.title() != "spanloop"
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= NARROW["width"]
    page.set_viewport_size(VIEWPORT)
    expect(page.get_by_test_id("stSidebar")).to_have_count(0)  # there is room for the navigation above the page again
    # Without an npm registry the rest is skipped.
    axe = Axe(request.getfixturevalue("axe_script"), page)
    axe.check(path)
    axe.assert_no_violation()


def test_no_view_has_a_serious_accessibility_violation(person: Person, axe_script: str) -> None:
    axe = Axe(axe_script, person.page)
    person.open("episodes?agent=bare_loop&outcome=failure&q=overloaded")
    person.press("f")
    axe.check("an open menu")
    person.click(person.page.get_by_role("button", name="attribute"))
    person.page.get_by_role("option").first.wait_for()
    axe.check("values of a filter")
    person.open("episodes?agent=bare_loop&outcome=failure")
    person.rows().first.get_by_role("checkbox").check()
    axe.check("a selected row")
    episode = person.rows().first.get_attribute("data-id")
    for view in ("Conversation", "Spans", "Transitions", "Failures"):
        person.open(f"episodes?episode={episode}&view={view}")
        axe.check(f"{view} of an episode")
    person.open(f"sessions?conversation={SESSION}")
    axe.check("a session")
    person.open("numbers?view=Agents")
    axe.check("the graph of agents")
    person.open(f"traces?trace={'0000' + '0002':c<32}")
    person.click(person.page.get_by_role("treeitem").filter(has_text="chat large").last)
    axe.check("a span beside its tree")
    axe.assert_no_violation()


def test_an_unknown_page_is_named(person: Person) -> None:
    person.open("nonsense")
    expect(person.page.get_by_text("There is no page /nonsense")).to_be_visible()
