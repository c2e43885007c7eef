"""Sessions, the graph of agents and the panel of a span, of a team of agents that the pipeline converted."""

import json
from dataclasses import replace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .dashboard_driver import follow, links, open_page, page_links, span_lines, table, text_of
from .dashboard_seeding import insert, spans
from .team_seeding import SESSION, seed_team


@pytest.fixture(scope="module")
def team(clickhouse: Address, databases: ReusedDatabases) -> Address:
    """A database with two sessions of the team, and traces without a session that are not converted."""
    address = replace(clickhouse, database=databases.take())
    with Store(address) as store:
        seed_team(store, sessions=2)
        insert(store, "otel_traces", spans(5))
    return address


@pytest.fixture(autouse=True)
def _environment(team: Address, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(team))


def drawn_graph(app: AppTest) -> dict[str, Any]:
    (graph,) = (
        json.loads(each.proto.json)
        for each in app.get("bidi_component")
        if each.proto.component_name == "spanloop_agent_graph"
    )
    content: dict[str, Any] = graph
    return content


def test_sessions_are_listed_with_question_and_answer() -> None:
    app = open_page("sessions")
    listed = table(app)
    assert listed["session"].to_list() == [SESSION, "session-1"]
    assert listed["turns"].to_list() == [3, 3]
    assert listed["failed"].to_list() == [1, 1]
    assert listed["input"][0] == "Which desks are in stock?"
    assert str(listed["output"][0]).startswith("# Offer")
    assert table(open_page("sessions", q="terms", time="24h")).height == 2
    assert "No session matches." in text_of(open_page("sessions", service="none"))


def test_a_session_is_one_conversation_and_each_turn_leads_to_its_trace() -> None:
    app = follow(links(open_page("sessions"))[0])
    assert not app.exception
    shown = text_of(app)
    for number, question in enumerate(("Which desks", "And what does", "Please write"), 1):
        assert shown.count(question) == 1  # later turns repeat it in their prompts
        assert f"**Turn {number}**" in shown
    assert "<h4>Offer</h4>" in shown
    assert "4 steps · with researcher · :red[1 tool call failed]" in shown
    assert [label for label in page_links(app) if label.startswith("Trace ")] == [
        f"Trace 0000000{turn}cc…" for turn in range(3)
    ]
    everything = open_page("sessions", conversation=SESSION, every="true")
    assert not everything.exception
    assert not everything.warning
    assert "step 3 · planner" in text_of(everything)
    assert "No span of this session is stored" in text_of(open_page("sessions", conversation="none"))


def test_who_called_whom_and_what_failed() -> None:
    app = open_page("numbers", view="Agents")
    assert not app.exception
    calls = {
        (row["caller"], row["callee"]): (row["calls"], row["failures"]) for row in table(app).iter_rows(named=True)
    }
    assert calls == {
        ("planner", "researcher"): (4, 2),
        ("researcher", "search_stock"): (4, 2),
        ("planner", "writer"): (2, 0),
        ("writer", "render_offer"): (2, 0),
    }
    graph = drawn_graph(app)
    assert {node["name"]: node["column"] for node in graph["nodes"]} == {
        "planner": 0, "researcher": 1, "writer": 1, "search_stock": 2, "render_offer": 2,
    }  # fmt: skip
    edge = next(each for each in graph["edges"] if each["target"] == "tool:search_stock")
    behind = follow(edge["href"])
    assert "4 episodes in which researcher called search\\_stock" in [each.value for each in behind.subheader]
    assert table(behind)["failed"].to_list() == ["failed", "failed", "worked", "worked"]
    node = next(each for each in graph["nodes"] if each["name"] == "writer")
    assert table(follow(node["href"])).height == 2
    assert "a call that no episode has" in text_of(open_page("numbers", view="Agents", callee="tool:none"))


def test_a_span_that_is_no_step_shows_its_own_messages_or_arguments() -> None:
    converted = "00000002".ljust(32, "c")
    lines = span_lines(open_page("traces", trace=converted))
    by_name = dict(zip(lines["name"], lines["id"], strict=True))
    tool = text_of(open_page("traces", trace=converted, span=by_name["execute_tool render_offer"]))
    assert "**Arguments**" in tool
    assert "**Result**" in tool
    last = text_of(open_page("traces", trace=converted, span=by_name["chat large"]))
    assert "Please write the offer." in last
    waiting = "010000".ljust(32, "a")
    lines = span_lines(open_page("traces", trace=waiting))
    call = text_of(open_page("traces", trace=waiting, span=lines["id"][1]))
    assert "Can I get a refund" in call
    assert "names a span that is none of these" in text_of(open_page("traces", trace=waiting, span="none"))
    app = open_page("traces", trace=converted, find="render_offer")
    assert not app.exception
