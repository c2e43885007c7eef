"""Replaced revisions are erased after a while; current ones, and those that a dataset or an evaluation names, stay."""

import json
from pathlib import Path

import polars as pl
import pytest

from spanloop.pipeline import run
from spanloop.pipeline.replaced_revisions import erase_replaced, pin_manifests
from spanloop.store import Store
from spanloop.store.pinned_revisions import pin

from ..converters.converters_world import loop, trace_id
from ..converters.pipeline_feed import Feed

TABLES = ("transition_rows", "step_summaries", "episode_messages", "trajectories")


@pytest.fixture
def revisions(store: Store, feed: Feed) -> list[int]:
    """Three revisions of one episode, oldest first."""
    loop(feed.world, "a", steps=3, trace=trace_id("a"))
    for number in range(3):
        feed.world.capture([1, 2], [3], response_id=f"chatcmpl-{number + 1}")
        feed.send([number])
        run(store)
    found: list[int] = feed.sql("SELECT DISTINCT revision FROM transition_rows ORDER BY revision")["revision"].to_list()
    assert len(found) == 3
    return found


def stored(feed: Feed) -> dict[str, list[int]]:
    return {
        table: feed.sql(f"SELECT DISTINCT revision FROM {table} ORDER BY revision")["revision"].to_list()
        for table in TABLES
    }


def test_only_the_current_revision_stays(store: Store, feed: Feed, revisions: list[int]) -> None:
    current = feed.current("transitions")
    assert erase_replaced(store) == 0  # a reader may still use them
    assert erase_replaced(store, grace_s=-60) == 2
    assert stored(feed) == dict.fromkeys(TABLES, revisions[-1:])
    assert feed.current("transitions").equals(current)
    assert feed.sql("SELECT count() AS n FROM replaced_revisions").item() == 0
    assert erase_replaced(store, grace_s=-60) == 0


def test_pinned_and_evaluated_revisions_stay(store: Store, feed: Feed, revisions: list[int]) -> None:
    pin(store, [(trace_id("a"), revisions[0])])
    evaluated = {"evaluation_id": "v", "episode_id": trace_id("a"), "revision": revisions[1]}
    store.insert("evaluation_episodes", pl.DataFrame([evaluated], schema=store.schema("evaluation_episodes")))
    assert erase_replaced(store, grace_s=-60) == 0
    assert stored(feed)["transition_rows"] == revisions


def test_manifests_of_older_jobs_pin_too(store: Store, feed: Feed, revisions: list[int], tmp_path: Path) -> None:
    for name, text in {
        "old": json.dumps({"pinned": [{"episode_id": trace_id("a"), "revision": revisions[1]}]}),
        "broken": "{",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    pin_manifests(store, tmp_path)
    assert erase_replaced(store, grace_s=-60) == 1
    assert stored(feed)["transition_rows"] == revisions[1:]


def test_a_revision_that_is_current_after_all_stays(store: Store, feed: Feed, revisions: list[int]) -> None:
    replaced = {"episode_id": [trace_id("a")], "revision": revisions[-1:]}
    store.insert("replaced_revisions", pl.DataFrame(replaced, schema_overrides={"revision": pl.UInt64}))
    erase_replaced(store, grace_s=-60)
    assert stored(feed)["transition_rows"] == revisions[-1:]


def test_an_episode_that_joined_another_leaves_no_rows(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", steps=3)
    feed.send([0, 2])
    run(store)
    feed.send([1])
    assert run(store).tombstones == 1
    assert erase_replaced(store, grace_s=-60) == 2
    assert feed.sql("SELECT count() AS n FROM transition_rows").item() == 3
