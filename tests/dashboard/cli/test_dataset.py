"""``spanloop dataset``: a filter becomes a version, which is shown with its leakage and exported as it was."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spanloop.cli.app import app
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.data_sets import fetch_members, find_data_set
from spanloop.store.judgements import Opinion, find_target, judge

from ...conftest import MakeFrame
from ...converters.converters.converters_world import OPENING, answers, asks, text, trace_id
from ...converters.converters.pipeline_feed import Feed
from ..urls import clickhouse_url


@pytest.fixture
def feed(store: Store, address: Address, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A store with attempts at two tasks, which the command finds by its address."""
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    connection = Connection(address)
    feed = Feed(store, connection)
    for number, reward in enumerate((1.0, 1.0, 0.0)):
        trace, task = trace_id(f"e{number}"), {"spanloop.task.id": f"weather-{number % 2}"}
        feed.world.call(OPENING, asks("c1"), trace=trace, attributes=task)
        seen = [*OPENING, asks("c1"), answers("c1", "42")]
        feed.world.call(seen, text("assistant", f"Sunny {number}."), trace=trace, attributes=task)
        feed.world.score(reward, trace_id=trace)
    feed.send()
    run(store)
    yield feed
    connection.close()


def spanloop(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["dataset", *map(str, arguments)])
    if isinstance(result.exception, ConfigurationError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def table(result: Result) -> list[list[str]]:
    return [line.split() for line in result.output.splitlines()]


@pytest.mark.usefixtures("feed")
def test_a_filter_becomes_a_version_that_is_listed() -> None:
    assert "no data sets" in spanloop("list").output
    assert "shop@v1" in spanloop("add", "shop", "--filter", "outcome=success&task=weather-*", "--by", "ann").output
    result = spanloop("add", "shop", "--filter", "task=weather-0", "--episode", trace_id("e1"), "--comment", "all")
    assert "shop@v2" in result.output
    assert "added 1, already_in_data_set 2; the version has 3 episodes" in result.output
    assert [row[:3] for row in table(spanloop("list"))[1:]] == [["shop@v2", "3", "1"], ["shop@v1", "2", "2"]]
    assert "shop@v3" in spanloop("remove", "shop", trace_id("e0")).output
    for arguments, message in (
        (("add", "shop"), "No episodes are named"),
        (("add", "shop", "--filter", "colour=red"), "no filter colour"),
        (("add", "shop", "--filter", "task=weather-0", "--episode", "x"), "no episode x"),
        (("show", "nope"), "no data set 'nope'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            spanloop(*arguments)


@pytest.mark.usefixtures("feed")
def test_a_data_set_is_deleted_with_its_versions_and_its_episodes_stay(store: Store) -> None:
    for name in ("shop", "other"):
        spanloop("add", name, "--filter", "task=weather-*")
    spanloop("remove", "shop", trace_id("e0"))
    before = store.query("data_set_current_episodes", episode_ids=[trace_id("e0")]).height
    declined = CliRunner().invoke(app, ["dataset", "delete", "shop"], input="n\n")
    assert declined.exit_code == 1
    assert "Delete the 2 versions of shop?" in declined.output
    assert "deleted shop with 2 versions" in spanloop("delete", "shop", "--yes").output
    assert [row[0] for row in table(spanloop("list"))[1:]] == ["other@v1"]
    assert find_data_set(store, "other").episodes == 3
    assert store.query("data_set_current_episodes", episode_ids=[trace_id("e0")]).height == before == 1
    for name, message in (("shop", "no data set 'shop'"), ("other@v1", "no name of a data set")):
        with pytest.raises(ConfigurationError, match=message):
            spanloop("delete", name, "--yes")


def test_composition_rejections_and_leakage_are_shown(feed: Feed, store: Store, frame_of: MakeFrame) -> None:
    judge(store, find_target(store, trace_id("e2")), Opinion(verdict=Verdict.BAD), judged_by="ann")
    run(store)
    spanloop("add", "shop", "--filter", "task=weather-*")
    rows = table(spanloop("show", "shop@v1"))
    for row in (
        ["outcome", "success", "2"],
        ["outcome", "failure", "1"],
        ["judged", "yes", "1"],
        ["judged", "no", "2"],
    ):
        assert row in rows
    (reason,) = feed.sql("SELECT DISTINCT untrainable_reason FROM transition_rows")["untrainable_reason"]
    assert [*(reason or "can be trained on").split(), "6", "3"] in rows
    assert "no evaluation shares a task" in spanloop("show", "shop").output
    now = datetime(2026, 1, 2, tzinfo=UTC)
    evaluation = {
        "evaluation_id": "held:m@v1",
        "revision": 7,
        "name": "held",
        "tasks": 5,
        "created_at": now,
        "started_at": now,
    }
    store.insert("evaluations", frame_of("evaluations", [evaluation]))
    counted = {"evaluation_id": "held:m@v1", "evaluation_revision": 7}
    members = [counted | {"episode_id": trace_id("e0"), "task_id": "weather-0"}]
    members += [
        counted | {"episode_id": "other", "task_id": "weather-0"},
        counted | {"episode_id": "far", "task_id": "x"},
        counted | {"episode_id": trace_id("e1"), "task_id": "weather-1", "left_out": "training_task"},
    ]
    store.insert("evaluation_episodes", frame_of("evaluation_episodes", members))
    assert ["held:m@v1", "1", "5", "2", "1"] in table(spanloop("show", "shop"))


@pytest.mark.usefixtures("feed")
def test_an_export_has_the_pinned_outcomes(store: Store, tmp_path: Path) -> None:
    spanloop("add", "shop", "--filter", "task=weather-*")
    judge(store, find_target(store, trace_id("e0")), Opinion(verdict=Verdict.BAD), judged_by="ann")
    run(store)
    lines: dict[str, list[str]] = {}
    for kind in ("openai", "sharegpt", "jsonl", "parquet", "verl"):
        spanloop("export", "shop@v1", kind, tmp_path / kind)
        manifest = json.loads((tmp_path / kind / "manifest.json").read_text())
        assert manifest["query"] == {"data_set": "shop@v1"}
        assert len(manifest["episodes"]) == 3
        if kind in {"openai", "sharegpt"}:
            assert (manifest["accepted"], manifest["rejected"]) == (4, {"not_successful": 2})
            lines[kind] = (tmp_path / kind / "data" / "train-00000.jsonl").read_text().splitlines()
    turns = json.loads(lines["sharegpt"][0])
    assert [turn["from"] for turn in turns["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert turns["system"] == "You are helpful."
    assert len(lines["sharegpt"]) == len(lines["openai"]) == 2
    spanloop("add", "shop", "--filter", "task=weather-*")
    spanloop("export", "shop", "openai", tmp_path / "openai")
    manifest = json.loads((tmp_path / "openai" / "manifest.json").read_text())
    assert (manifest["query"], manifest["accepted"]) == ({"data_set": "shop@v2"}, 2)


@pytest.mark.usefixtures("feed")
def test_an_exported_trajectory_is_imported_with_its_steps_and_reward(store: Store, tmp_path: Path) -> None:
    spanloop("add", "shop", "--filter", "task=weather-*")
    spanloop("export", "shop", "atif", tmp_path / "atif")
    result = CliRunner().invoke(app, ["import", str(tmp_path / "atif" / "data")])
    assert result.exit_code == 0, result.output
    run(store)
    added = CliRunner().invoke(app, ["dataset", "add", "again", "--filter", "service=imported"])
    assert added.exit_code == 0, added.output
    columns = ("task_id", "outcome", "reward", "step_count", "agent_name", "model")
    first, again = (fetch_members(store, find_data_set(store, name)).select(columns) for name in ("shop", "again"))
    assert sorted(again.rows()) == sorted(first.rows())
