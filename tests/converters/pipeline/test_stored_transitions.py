"""The view ``transitions`` shows what was inserted and reads one episode; messages and prompts are stored once."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.store import Store

from ...stored_states import insert_transitions
from ..converters.pipeline_feed import Feed

MESSAGES = [json.dumps({"role": "user", "content": f"{number} é"}, separators=(",", ":")) for number in range(40)]
SHOWN = ["episode_id", "revision", "step", "state", "next_state", "prompt_token_ids", "action"]


def listed(messages: Sequence[str]) -> str:
    return "[" + ",".join(messages) + "]"


def transitions(store: Store, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    filled: list[dict[str, Any]] = [
        {"episode_id": "e", "revision": 1, "step": step, "agent_name": "a", "action": "{}", "next_state": "",
         "prompt_token_ids": [], **row}
        for step, row in enumerate(rows)
    ]  # fmt: skip
    return pl.DataFrame(filled, schema=store.schema("transitions")).drop("converted_at")


def shown(feed: Feed, where: str = "1") -> pl.DataFrame:
    return feed.sql(f"SELECT {', '.join(SHOWN)} FROM transitions WHERE {where} ORDER BY episode_id, revision, step")


WORLDS: dict[str, list[Mapping[str, Any]]] = {
    "append-only": [
        {"state": listed(MESSAGES[:end]), "next_state": listed(MESSAGES[: end + 2]) if end < 9 else ""}
        for end in (1, 3, 5, 7, 9)
    ],
    "an edited history": [
        {"state": listed(MESSAGES[:20]), "next_state": listed([*MESSAGES[:5], '"x"', *MESSAGES[6:20]])},
        {"state": listed([*MESSAGES[:5], '"x"', *MESSAGES[6:20]])},
    ],
    "branches": [
        {"state": listed(MESSAGES[:3])},
        {"state": listed([*MESSAGES[:2], MESSAGES[9]])},
        {"state": listed([*MESSAGES[:3], MESSAGES[0], MESSAGES[0]])},
    ],
    "no messages": [{"state": "[]", "next_state": "[]"}, {"state": "[]", "next_state": ""}],
    "prompts": [
        {"state": "[]", "prompt_token_ids": [1, 2]},
        {"state": "[]", "prompt_token_ids": [1, 2, 3], "agent_name": "b"},
        {"state": "[]"},
        {"state": "[]", "prompt_token_ids": [1, 2, 5, 6]},
        {"state": "[]", "prompt_token_ids": [1, 2, 5, 6]},
        {"state": "[]", "prompt_token_ids": [1, 9]},
        {"state": "[]", "prompt_token_ids": [1]},
    ],
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=list(WORLDS))
def test_the_view_shows_what_was_inserted(store: Store, feed: Feed, world: list[Mapping[str, Any]]) -> None:
    rows = transitions(store, world)
    insert_transitions(store, rows)
    assert_frame_equal(shown(feed), rows.select(SHOWN))


def test_messages_and_prompts_are_stored_once(store: Store, feed: Feed) -> None:
    insert_transitions(store, transitions(store, WORLDS["append-only"]))
    assert feed.sql("SELECT message FROM episode_messages ORDER BY number")["message"].to_list() == MESSAGES[:9]
    states = feed.sql("SELECT state, next_state FROM transition_rows ORDER BY step").rows()
    assert states == [([0, end], [0, end + 2] if end < 9 else [0, 0]) for end in (1, 3, 5, 7, 9)]


def test_a_prompt_is_stored_at_the_last_step_that_begins_with_it(store: Store, feed: Feed) -> None:
    insert_transitions(store, transitions(store, WORLDS["prompts"]))
    stored = "SELECT prompt_step, prompt_length, prompt_token_ids FROM transition_rows ORDER BY step"
    assert feed.sql(stored).rows() == [
        (4, 2, []),
        (1, 3, [1, 2, 3]),
        (2, 0, []),
        (4, 4, []),
        (4, 4, [1, 2, 5, 6]),
        (5, 2, [1, 9]),
        (6, 1, [1]),
    ]


def test_messages_without_their_rows_show_nothing(store: Store, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    insert = store.insert

    def crash(table: str, frame: pl.DataFrame, *, token: str = "") -> int:
        if table == "transition_rows":
            raise ConnectionError
        return insert(table, frame, token=token)

    rows = transitions(store, WORLDS["append-only"])
    monkeypatch.setattr(store, "insert", crash)
    with pytest.raises(ConnectionError):
        insert_transitions(store, rows)
    assert shown(feed).is_empty()
    monkeypatch.undo()
    insert_transitions(store, rows)
    assert_frame_equal(shown(feed), rows.select(SHOWN))


FILTERS = (
    "episode_id = '7' AND revision = 1",
    "episode_id IN ('7', '8')",
    "(episode_id, revision) IN (SELECT '7', toUInt64(1))",
)


@pytest.mark.parametrize("where", FILTERS)
def test_a_filter_on_the_episode_reaches_all_tables(feed: Feed, where: str) -> None:
    for table in ("transition_rows", "episode_messages"):
        feed.execute(f"INSERT INTO {table} (episode_id, revision) SELECT toString(number), 1 FROM numbers(100000)")
    plan = feed.sql(f"EXPLAIN indexes = 1 SELECT * FROM transitions WHERE {where}")["explain"].to_list()
    reads = [line for line in plan if "ReadFromMergeTree" in line]
    granules = [(int(read), int(total)) for read, total in re.findall(r"Granules: (\d+)/(\d+)", "\n".join(plan))]
    assert len([line for line in reads if "transition_rows" in line]) == 2
    assert len([line for line in reads if "episode_messages" in line]) == 1
    of_large_tables = [read for read, total in granules if total > 5]
    assert len(of_large_tables) >= 3
    assert max(of_large_tables) <= 2, plan
