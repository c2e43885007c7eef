"""What a row says: the text around words that were searched for, and the episode of a trace."""

from datetime import UTC, datetime, timedelta

import polars as pl

from spanloop.dashboard.queries.conditions import Words
from spanloop.dashboard.queries.previews import fetch_trace_episodes, snippet
from spanloop.store import Store

from .dashboard_seeding import insert

START = datetime(2026, 3, 1, 10, 0, 0, 900_000, tzinfo=UTC)


def test_a_narrow_cell_shows_the_word_that_was_searched_for() -> None:
    text = snippet("a tool failed with Error: KeyError: no item 'melon' in the list", Words("melon", ("melon",), False))
    assert text == "…r: no item '\x02melon\x03' in the list"


def test_the_last_trace_of_a_range_has_its_episode(store: Store) -> None:
    last = START + timedelta(milliseconds=400)  # in the next second
    insert(
        store,
        "episodes",
        [{"episode_id": "a", "revision": 1, "started_at": last, "trace_ids": ["f" * 32]}],
    )
    ends = pl.DataFrame({"trace_id": ["f" * 32], "started_at": [START], "duration_ns": [700_000_000]})
    assert fetch_trace_episodes(store, ends)["episode_id"].to_list() == ["a"]
