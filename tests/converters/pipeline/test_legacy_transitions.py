"""Rows of an older version: shown before, during and after they are moved; moved in bounded parts; resumed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.pipeline import legacy_transitions
from spanloop.pipeline.legacy_transitions import move_legacy
from spanloop.pipeline.stored_transitions import insert_transitions
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.migrate import migrate, migrations
from spanloop.store.pinned_revisions import pin

from ..converters.pipeline_feed import Feed

SHOWN = "SELECT * EXCEPT (started_at, converted_at) FROM transitions ORDER BY episode_id, revision, step"
BEFORE_MESSAGES = 11


def texts(count: int, edit: str = "") -> str:
    return "[" + ",".join([*(json.dumps(f"{edit}{number}") for number in range(count))]) + "]"


def steps(episode_id: str, revision: int, count: int = 3) -> list[Mapping[str, Any]]:
    return [
        {
            "transition_id": f"{episode_id}/{step}", "episode_id": episode_id, "revision": revision, "step": step,
            "state": texts(2 * step + 1), "next_state": texts(2 * step + 3) if step + 1 < count else "",
            "prompt_token_ids": list(range(5 * step)), "trace_id": episode_id,
        }
        for step in range(count)
    ]  # fmt: skip


def insert_legacy(store: Store, rows: list[Mapping[str, Any]]) -> None:
    frame = pl.DataFrame(rows, schema=store.schema("legacy_transitions"))
    store.insert("legacy_transitions", frame.drop("converted_at"))


def insert_episodes(store: Store, revisions: Mapping[str, int]) -> None:
    rows = [{"episode_id": name, "revision": revision, "trace_ids": [name]} for name, revision in revisions.items()]
    store.insert("episodes", pl.DataFrame(rows, schema=store.schema("episodes")).drop("converted_at"))


def count(feed: Feed, table: str) -> int:
    return int(feed.sql(f"SELECT count() AS n FROM {table}").item())


def test_rows_are_shown_once_before_and_after_the_move(store: Store, feed: Feed) -> None:
    insert_legacy(store, [row for name in "abc" for row in steps(name, 7)])
    insert_episodes(store, {"a": 7, "b": 7, "c": 7})
    before = feed.sql(SHOWN)
    assert before.height == 9
    assert move_legacy(store, max_s=60, max_steps=4) == 0
    assert_frame_equal(feed.sql(SHOWN), before)
    assert (count(feed, "legacy_transitions"), count(feed, "transition_rows"), count(feed, "episode_messages")) == (
        0, 9, 15,
    )  # fmt: skip
    assert move_legacy(store, max_s=60) == 0


def test_a_long_revision_is_moved_in_parts(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    insert_legacy(store, [*steps("a", 7, 2), *steps("b", 7, 40), *steps("c", 7, 2)])
    insert_episodes(store, {"a": 7, "b": 7, "c": 7})
    heights: list[int] = []

    def insert(to: Store, rows: pl.DataFrame, numbers: Any) -> None:
        heights.append(rows.height)
        insert_transitions(to, rows, numbers)

    monkeypatch.setattr(legacy_transitions, "insert_transitions", insert)
    before = feed.sql(SHOWN)
    assert move_legacy(store, max_s=60, max_steps=10, max_bytes=3_000) == 0
    assert_frame_equal(feed.sql(SHOWN), before)
    assert sum(heights) == 44
    assert max(heights) < 20
    assert count(feed, "episode_messages") == 3 + 79 + 3


def test_a_crash_shows_no_row_twice_and_the_next_call_goes_on(
    store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_legacy(store, [row for name in "abcd" for row in steps(name, 7)])
    insert_episodes(store, dict.fromkeys("abcd", 7))
    before = feed.sql(SHOWN)

    def crash(*_: object, **__: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(legacy_transitions, "erase", crash)
        with pytest.raises(ConnectionError):
            move_legacy(store, max_s=60, max_steps=7)
    assert count(feed, "transition_rows") == 6
    assert_frame_equal(feed.sql(SHOWN), before)
    assert move_legacy(store, max_s=0, max_steps=7) == 6
    assert_frame_equal(feed.sql(SHOWN), before)
    assert move_legacy(store, max_s=60, max_steps=7) == 0
    assert_frame_equal(feed.sql(SHOWN), before)


def test_a_revision_that_is_written_meanwhile_is_shown_once(store: Store, feed: Feed) -> None:
    insert_legacy(store, steps("a", 7))
    insert_episodes(store, {"a": 7})
    rows = pl.DataFrame(steps("a", 7), schema=store.schema("transitions")).drop("converted_at")
    insert_transitions(store, rows.with_columns(state=pl.lit(texts(2, "new")), action=pl.lit("new")))
    assert count(feed, "transitions") == 3
    move_legacy(store, max_s=60)
    shown = feed.sql(SHOWN)
    assert shown.height == 3
    assert set(shown["state"]) == {texts(2, "new")}


def test_replaced_revisions_go_unless_something_names_them(store: Store, feed: Feed) -> None:
    insert_legacy(store, [row for revision in range(1, 6) for row in steps("a", revision)])
    insert_legacy(store, steps("without an episode", 1))
    insert_episodes(store, {"a": 5})
    pin(store, [("a", 2)])
    evaluated = {"evaluation_id": "v", "episode_id": "a", "revision": 3}
    store.insert("evaluation_episodes", pl.DataFrame([evaluated], schema=store.schema("evaluation_episodes")))
    assert move_legacy(store, max_s=60) == 0
    kept = feed.sql("SELECT DISTINCT episode_id, revision FROM transitions ORDER BY ALL").rows()
    assert kept == [("a", 2), ("a", 3), ("a", 5), ("without an episode", 1)]


@pytest.mark.slow
def test_a_database_of_an_older_version_opens_with_its_rows(address: Address) -> None:
    old = replace(address, database=f"{address.database}_old")
    migrate(old, migrations()[:BEFORE_MESSAGES])
    connection = Connection(old)
    try:
        with Store(old) as store:
            rows = pl.DataFrame(steps("a", 7), schema=store.schema("transitions")).drop("converted_at")
            store.insert("transitions", rows)
        migrate(old)
        for statement in migrations()[BEFORE_MESSAGES].statements[1:]:  # an interrupted migration runs again
            connection.command(statement, doing="again")
        before = connection.query(SHOWN, doing="looking")
        assert before["state"].to_list() == [texts(1), texts(3), texts(5)]
        with Store(old) as store:
            insert_episodes(store, {"a": 7})
            assert store.query("dashboard_totals", since_s=0)["episodes"].item() == 1
            assert move_legacy(store, max_s=60) == 0
        assert_frame_equal(connection.query(SHOWN, doing="looking"), before)
    finally:
        connection.command(f"DROP DATABASE `{old.database}`", doing="cleaning up")
        connection.close()
