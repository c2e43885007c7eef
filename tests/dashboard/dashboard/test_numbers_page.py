"""The page Numbers: every view draws, says what is missing, and each row's address opens its episodes."""

from dataclasses import replace

import pytest

from spanloop.dashboard.view_models.formatting import DASH
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .dashboard_driver import figures, follow, links, open_page, table, tables, text_of
from .numbers_seeding import seed_numbers

TOML = """[prices]
currency = "EUR"
[[prices.models]]
model = "gpt-*"
input = 1.0
cached = 0.5
output = 2.0
"""


@pytest.fixture(scope="module")
def numbered(clickhouse: Address, databases: ReusedDatabases) -> Address:
    """A database with the four episodes."""
    address = replace(clickhouse, database=databases.take())
    with Store(address) as store:
        seed_numbers(store)
    return address


@pytest.fixture
def directory(numbered: Address, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data directory with prices of one of the two models."""
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(numbered))
    data_dir.open()
    (data_dir.path / "spanloop.toml").write_text(TOML)
    return data_dir


@pytest.mark.usefixtures("directory")
def test_a_row_of_latency_opens_its_episodes() -> None:
    app = open_page("numbers", by="model")
    assert not app.exception
    shown = table(app)
    assert shown["value"].to_list() == ["house", "gpt-1"]
    cells = tables(app)[0]["rows"][0]["cells"]
    assert (cells["p95"]["text"], cells["first_p95"]["text"]) == ("5.00 s", "not recorded")
    opened = follow(links(app)[0])
    assert not opened.exception
    assert sorted(table(opened)["duration"].to_list()) == [10e9, 30e9]


@pytest.mark.usefixtures("directory")
def test_latency_of_tools_says_how_many_calls_have_a_duration() -> None:
    assert sorted(table(open_page("numbers", by="tool")).select("value", "calls", "measured").rows()) == [
        ("lookup", 1, 1),
        ("search", 3, 2),
    ]


@pytest.mark.usefixtures("directory")
def test_a_failed_tool_whose_calls_are_in_no_message_has_no_number_of_calls() -> None:
    (tools,) = (
        each for each in tables(open_page("failures")) if any("by_tool" in row["cells"] for row in each["rows"])
    )
    rows = {row["cells"]["tool"]: row["cells"] for row in tools["rows"]}
    texts = {tool: [cells[name]["text"] for name in ("failures", "calls", "share")] for tool, cells in rows.items()}
    assert texts == {"fetch": ["2", DASH, DASH], "lookup": ["0", "1", "0 %"], "search": ["0", "3", "0 %"]}


@pytest.mark.usefixtures("directory")
def test_without_times_to_first_token_the_page_says_what_records_them() -> None:
    app = open_page("numbers", by="agent", agent="writer")
    assert "gen_ai.response.time_to_first_chunk" in text_of(app)


@pytest.mark.usefixtures("directory")
def test_an_unknown_price_is_said() -> None:
    app = open_page("numbers", view="Tokens and cost", by="model")
    assert not app.exception
    assert "No price for house: 2 calls, 8,500 tokens." in [str(each.value) for each in app.warning]
    assert {figure["label"]: figure["value"] for figure in figures(app)}["Cost"] == "≥ 2.75 EUR"
    costs = {row["value"]: row["cost"] for row in table(app).iter_rows(named=True)}
    assert costs == {"gpt-1": "≥ 2.75 EUR", "house": "no price"}


def test_without_prices_the_page_shows_how_to_add_them(directory: DataDir) -> None:
    (directory.path / "spanloop.toml").unlink()
    app = open_page("numbers", view="Tokens and cost")
    assert "[[prices.models]]" in str(app.code[0].value)
    assert {figure["label"]: figure["value"] for figure in figures(app)}["Cost"] == "no price"


@pytest.mark.usefixtures("directory")
def test_failed_episodes_are_behind_a_row_of_error_rates() -> None:
    app = open_page("numbers", view="Errors over time", by="agent")
    assert not app.exception
    assert table(app).select("value", "failures", "episodes").rows() == [("writer", 2, 2)]
    assert table(follow(links(app)[0])).height == 2


@pytest.mark.usefixtures("directory")
def test_waste_is_that_of_a_groups_episodes() -> None:
    app = open_page("numbers", view="Wasted by failures")
    assert not app.exception
    assert table(app).select("message", "episodes").rows() == [("it was wrong", 2), ("it was slow", 1)]
    assert table(follow(links(app)[1]))["duration"].to_list() == [30e9]


@pytest.mark.usefixtures("directory")
def test_filters_without_an_episode_are_said() -> None:
    assert "No episode matches." in text_of(open_page("numbers", agent="nobody"))


def test_a_mistake_among_the_prices_is_named(directory: DataDir) -> None:
    (directory.path / "spanloop.toml").write_text(TOML.replace("output = 2.0", "output = -2.0"))
    app = open_page("overview")
    assert "prices.models.0.output: Input should be greater than or equal to 0" in text_of(app) + str(app.exception)
