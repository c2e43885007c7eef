"""``spanloop export`` from a store that the pipeline has filled."""

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from spanloop.cli.app import app
from spanloop.converters.credit import FAULT_COLUMNS
from spanloop.pipeline import run
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from ...converters.converters.converters_world import OPENING, answers, asks, exported_transitions, text, trace_id
from ...converters.converters.pipeline_feed import Feed


@pytest.fixture
def feed(store: Store, address: Address, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A store with three attempts at one task, which the command finds by its address."""
    login = f"{address.user}:{address.password}@{address.host}:{address.port}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, f"{address.scheme}://{login}/{address.database}")
    connection = Connection(address)
    made = Feed(store, connection)
    for number, (answer, reward) in enumerate((("Sunny.", 1.0), ("Rain.", 0.0), ("Fog.", 0.5))):
        trace, task = trace_id(f"e{number}"), {"spanloop.task.id": "weather-1"}
        world = made.world
        world.call(OPENING, asks("c1"), trace=trace, attributes=task, response_id=f"r{number}-0")
        seen = [*OPENING, asks("c1"), answers("c1", "42")]
        world.call(seen, text("assistant", answer), trace=trace, attributes=task, response_id=f"r{number}-1")
        world.capture([1, 2], [3], response_id=f"r{number}-0")
        world.capture([1, 2, 3, 4], [5, number], response_id=f"r{number}-1")
        world.score(reward, trace_id=trace)
    made.send()
    run(store)
    yield made
    connection.close()


def spanloop(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_every_kind_writes_what_the_store_holds(feed: Feed, tmp_path: Path) -> None:
    rows = {"openai": 2, "preferences": 1, "parquet": 6, "verl": 3}
    for kind, count in rows.items():
        result = spanloop("export", kind, tmp_path / kind)
        assert result.exit_code == 0, result.output
        manifest = json.loads((tmp_path / kind / "manifest.json").read_text())
        assert (manifest["kind"], manifest["rows"]) == (kind, count)
        assert manifest["accepted"] + sum(manifest["rejected"].values()) == (3 if kind == "verl" else 6)
        assert len(manifest["episodes"]) == 3
        pinned = feed.sql("SELECT episode_id, revision FROM pinned_revisions FINAL ORDER BY ALL").rows()
        assert pinned == [tuple(episode) for episode in manifest["episodes"]]
    (line, _) = (tmp_path / "openai" / "data" / "train-00000.jsonl").read_text().splitlines()
    assert json.loads(line)["messages"][-1] == {"role": "assistant", "content": "Sunny.", "weight": 1}
    verl = pl.read_parquet(tmp_path / "verl" / "data" / "train-00000.parquet")
    assert verl["response_ids"].list.len().to_list() == verl["response_mask"].list.len().to_list()
    assert verl["response_mask"].to_list() == [[1, 0, 1, 1]] * 3
    assert verl["prompt"].list.len().to_list() == [2, 2, 2]


def test_a_rerun_gives_the_same_bytes_and_a_new_score_another_pin(feed: Feed, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert spanloop("export", "parquet", tmp_path / name, "--credit", "group").exit_code == 0
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / n).rglob("*.*") if path.is_file()} for n in ("one", "two")
    )
    assert one == two
    feed.world.score(0.0, trace_id=trace_id("e0"), at_s=900)
    feed.send()
    run(feed.store)
    assert spanloop("export", "parquet", tmp_path / "two", "--credit", "group").exit_code == 0
    before, after = (json.loads((tmp_path / n / "manifest.json").read_text()) for n in ("one", "two"))
    assert before["content_sha256"] != after["content_sha256"]
    changed = [pin for pin in after["episodes"] if pin not in before["episodes"]]
    assert [episode for episode, _ in changed] == [trace_id("e0")]


def test_transitions_have_the_failures_of_their_step(feed: Feed) -> None:
    trace = trace_id("failing")
    feed.world.call(OPENING, None, trace=trace, error="Error code: 429")
    feed.world.call(OPENING, asks("c1", name="nonexistent"), trace=trace)
    feed.world.score(0.0, trace_id=trace)
    feed.send()
    run(feed.store)
    episodes = feed.sql("SELECT episode_id, revision FROM episodes FINAL")
    stored = feed.store.query(
        "export_transitions",
        episode_ids=episodes["episode_id"].to_list(),
        revisions=episodes["revision"].to_list(),
        data_set_id="",
    )
    converted = exported_transitions(feed.world.convert())
    columns = ("episode_id", "step", *FAULT_COLUMNS)
    expected, actual = (frame.select(columns).sort("episode_id", "step").rows() for frame in (converted, stored))
    assert [(*each[:-1], [bool(value) for value in each[-1]]) for each in actual] == expected
    assert sum(len(each[3]) for each in actual) >= 2
    assert {each[2] for each in actual} > {""}


@pytest.mark.usefixtures("feed")
def test_filters_choose_the_episodes(tmp_path: Path) -> None:
    for number, (arguments, episodes) in enumerate(
        (
            (["--task", "weather-1"], 3),
            (["--task-prefix", "weather-"], 3),
            (["--task-prefix", "other-"], 0),
            (["--policy-version", "tiny@v1"], 3),
            (["--policy-version", "tiny@v2"], 0),
            (["--since", "2026-11-20T09:00:00"], 3),
            (["--until", "2026-11-20T09:00:00"], 0),
        )
    ):
        result = spanloop("export", "openai", tmp_path / str(number), *arguments)
        assert result.exit_code == 0, result.output
        assert len(json.loads((tmp_path / str(number) / "manifest.json").read_text())["episodes"]) == episodes
    spanloop("export", "openai", tmp_path / "reward", "--min-reward", "0")
    assert json.loads((tmp_path / "reward" / "manifest.json").read_text())["accepted"] == 6
