"""``examples/extending``: a package of its own adds a dialect, rule, judge, reward function, selection, task reader,
grader and dashboard page by entry points; its recipe has a test of its own.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st

from spanloop.converters.dialects import registered_dialects
from spanloop.evaluation.graders import GraderContext, load_grader
from spanloop.evaluation.tasks import read_tasks
from spanloop.foundation.errors import ConfigurationError
from spanloop.pipeline.conversion_settings import conversion_settings
from spanloop.pipeline.model_call_condition import model_call_condition
from spanloop.runtime.extension_points import KINDS, extension_point
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.model_call_marks import mark_model_calls
from spanloop.training.dataset.selector import load_selector

from ..converters.converters.converters_world import OPENING, World, answers, asks, text, trace_id
from ..converters.converters.pipeline_feed import Feed
from ..dashboard.dashboard.dashboard_driver import open_page, registered_pages
from ..dashboard.urls import clickhouse_url
from ..training.selection_rows import row, rules, select

TAKES_ANY = ("readers", "reasoning-gym")
"""Gives options that it does not know to the generator."""
CONFIGURATION = """
[attribution]
rules = ["stale_quote:confidence=0.8", "default"]
judge = "first_step:confidence=0.4"

[rewards]
functions = ["short_answer:most=200"]

[dashboard.pages.slow-tools]
most = 1
"""


@pytest.fixture
def world(extending: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(sys, "path", [str(extending), *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spanloop.toml").write_text(CONFIGURATION)
    registered_dialects.cache_clear()
    st.cache_resource.clear()
    yield World()
    registered_dialects.cache_clear()
    st.cache_resource.clear()


def test_the_rule_and_the_reward_function_are_asked(world: World, tmp_path: Path) -> None:
    seen, asked = list(OPENING), asks("c1", "buy", {"quote": "q1"})
    world.call(seen, asked, trace=trace_id("t"))
    seen += [asked, answers("c1", "Error: quote expired")]
    world.call(seen, text("assistant", "x" * 100), trace=trace_id("t"))
    converted = world.convert(conversion_settings(tmp_path, environment={}).options)
    (failure,) = converted.failures.to_dicts()
    assert (failure["error_class"], failure["fault_owner"], failure["rule"]) == ("stale_quote", "policy", "stale_quote")
    assert failure["confidence"] == pytest.approx(0.8)
    assert converted.episodes.item(0, "reward_breakdown") == {"short_answer": 0.5}


def test_tasks_are_read_and_answers_graded(extending: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(extending), *sys.path])
    (tmp_path / "ada.txt").write_text("12345\n")
    (tmp_path / "notes.md").write_text("no card")
    (task,) = read_tasks(f"phone-book:{tmp_path}")
    assert (task.id, task.fields["answer"]) == ("ada", "12345")
    grader = load_grader("starts-with", {"least": "0.5"}, GraderContext(tmp_path))
    assert (grader.version, grader.required_fields) == ("1", ("answer",))
    assert [grader.grade(task, answer)[:2] for answer in ("12345", "1239", "9")] == [
        (1.0, True),
        (0.6, True),
        (0.0, False),
    ]


def test_the_judge_explains_a_failed_episode(world: World, tmp_path: Path) -> None:
    world.call(list(OPENING), text("assistant", "It is 12."), trace=trace_id("t"))
    world.score(0.0, trace_id=trace_id("t"))
    conversion = conversion_settings(tmp_path, environment={})
    (failure,) = world.convert(conversion.options).failures.to_dicts()
    assert (failure["error_class"], failure["rule"]) == ("wrong_plan", "llm_judge")
    assert failure["confidence"] == pytest.approx(0.4)
    assert conversion.judge_counts == {"answered": 1}


def test_the_dialect_reads_its_spans(world: World) -> None:
    seen = '[{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}]'
    attributes = {"acme.kind": "model", "acme.deployment": "tiny", "acme.messages": seen, "acme.stop": "stop"}
    world.span("call", {**attributes, "acme.answer": "Hello"}, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert "Hi" in step["state"]
    assert "Hello" in step["action"]


def test_the_store_marks_the_model_calls_of_the_dialect(world: World, store: Store, connection: Connection) -> None:
    feed = Feed(store, connection)
    feed.world = world
    for kind in ("model", "tool"):
        world.span("call", {"acme.kind": kind}, trace=trace_id("t"))
    assert mark_model_calls(feed.store, model_call_condition(registered_dialects()), max_s=60) == 0
    feed.send()
    marked = feed.sql("SELECT SpanAttributes['acme.kind'] AS kind, IsModelCall FROM otel_traces ORDER BY kind")
    assert marked.rows() == [("model", True), ("tool", False)]


def test_a_job_keeps_one_row_for_each_answer(world: World) -> None:
    del world  # installs the package
    rows = [row("a"), row("b"), row("c", response_token_ids=[7, 8])]
    selection = select(rows, rules("sft", selector=load_selector("one_for_each_answer")))
    assert selection.rows["episode_id"].to_list() == ["a", "c"]
    assert selection.row_tally.rejected == {"not_selected": 1}


def test_the_page_is_in_the_navigation_and_draws_what_is_stored(
    world: World, store: Store, address: Address, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_DIR_ENV, str(Path.cwd()))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    page = open_page("slow-tools")
    assert (page.title[0].value, page.info[0].value) == ("Slow tools", "No tool has been called yet.")
    entry = registered_pages(page)["slow-tools"]
    assert (entry["page_name"], entry["icon"]) == ("Slow tools", ":material/timer:")
    feed = Feed(store, connection)
    feed.world = world
    for tool in ("buy", "sell"):
        world.span("tool", {"gen_ai.tool.name": tool}, trace=trace_id("t"))
    feed.send()
    page = open_page("slow-tools")
    assert not page.exception
    assert len(page.dataframe[0].value) == 1  # the option `most` of spanloop.toml
    assert open_page("overview").title[0].value == "Overview"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("kind", KINDS)
def test_built_ins_and_the_package_pass_through_one_class_and_lookup(kind: str) -> None:
    point = extension_point(kind)
    listed = point.listed()
    assert not [line for line in listed if line.problem]
    assert [line.name for line in listed] == list(point.names)
    by_package = [line for line in listed if line.source == "spanloop-extending 0.1.0"]
    assert len(by_package) == 1
    for line in listed:
        assert line.help
        assert issubclass(point.find_class(line.name), point.base)
        assert all(option.help for option in line.options if option.is_required), line.name
        with pytest.raises(ConfigurationError, match=r"there is no option 'no_such'|option 'size' is 'many'"):
            point.find(line.name, {"size": "many"} if (kind, line.name) == TAKES_ANY else {"no_such": "1"})
