"""Half of an emoji, NUL and other odd text in every place of a span: from its JSON to each reader of the store."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.converters.exports import KINDS, ExportOptions
from spanloop.foundation.surrogates import replace_surrogates
from spanloop.messages import parse_messages
from spanloop.pipeline import run
from spanloop.store import Store

from ..converters.converters_world import TOOLS, answers, asks, text, trace_id
from ..converters.pipeline_feed import Feed

TEXTS = (
    "cut \ud83d",
    "\udc00 low",
    "\ud83d\ud83d twice",
    "\udc00\ud83d turned",
    "\ud83d",
    'quote " and \\ and \ud83d]},',
    "NUL \x00 and \ud83d",
    "NUL \x00",
    "whole \N{GRINNING FACE}",
    r"six characters \ud83d",
    "\u2028 \ud83d",
)


def seed(feed: Feed, number: int, odd: str) -> None:
    """An episode with the text in instructions, question, arguments, result, answer and tool definitions."""
    trace, tools = trace_id(f"t{number}"), [{**TOOLS[0], "description": odd}]
    seen = [text("system", odd), text("user", odd)]
    call = asks("c1", arguments={"query": odd, odd: [odd]}, content=odd)
    common: dict[str, Any] = {"trace": trace, "tools": tools, "attributes": {"spanloop.task.id": f"task-{number}"}}
    feed.world.call(seen, call, **common)
    # A protobuf string holds no half of a surrogate pair: the collector replaces it, and ClickHouse has none.
    feed.world.tool("c1", replace_surrogates(odd), trace=trace)
    seen += [call, answers("c1", odd)]
    feed.world.call(seen, text("assistant", odd), **common)
    feed.world.score(1.0, trace_id=trace)


@pytest.fixture
def stored(store: Store, feed: Feed) -> Store:
    for number, odd in enumerate(TEXTS):
        seed(feed, number, odd)
    feed.send()
    report = run(store)
    assert (report.transitions, report.trainable, report.untrainable) == (2 * len(TEXTS), 2 * len(TEXTS), {})
    return store


_PINNED = {"episode_ids": "episode_id", "revisions": "revision"}


def rows_of(store: Store, source: str) -> pl.DataFrame:
    episodes = store.query(
        "export_episodes", task_ids=[], task_prefix="", policy_version="", since="2020-01-01", until="2100-01-01"
    )
    pinned = {name: episodes[column].to_list() for name, column in _PINNED.items()}
    return store.query(f"export_{source}", **pinned, data_set_id="")


def test_the_view_shows_lists_of_messages_with_each_text(stored: Store, feed: Feed) -> None:
    del stored
    rows = feed.sql("SELECT * FROM transitions ORDER BY task_id, step").sort("task_id", "step")
    by_task = {task: group for (task,), group in rows.group_by("task_id")}
    for number, odd in enumerate(TEXTS):
        whole = replace_surrogates(odd)
        first, last = by_task[f"task-{number}"].sort("step").to_dicts()
        system, question, action, result = json.loads(last["state"])
        assert json.loads(first["action"])["parts"] == action["parts"]
        assert json.loads(first["state"]) == [system, question]
        assert json.loads(first["next_state"]) == json.loads(last["state"])
        assert [part["parts"][0]["content"] for part in (system, question, action)] == [whole] * 3
        assert action["parts"][1]["arguments"] == {"query": whole, whole: [whole]}
        assert result["parts"][0]["response"] == whole
        assert json.loads(last["action"])["parts"][0]["content"] == whole
        assert json.loads(first["tools"])[0]["description"] == whole
        assert json.loads(first["tool_results"])[0]["content"] == whole
        assert [message.role for message in parse_messages(last["state"])] == ["system", "user", "assistant", "tool"]


def test_clickhouse_reads_the_json_of_every_row(stored: Store, feed: Feed) -> None:
    """Its JSON functions read nothing from a text with half of a surrogate pair, so evaluations would see no call."""
    del stored
    counts = feed.sql(
        """
        SELECT
            countIf(isValidJSON(state)), countIf(isValidJSON(action)), countIf(isValidJSON(tools)),
            countIf(isValidJSON(tool_results)),
            countIf(JSONExtractString(JSONExtractArrayRaw(action, 'parts')[2], 'name') = 'search'), count()
        FROM transitions
        """
    ).row(0)
    assert counts == (*[2 * len(TEXTS)] * 4, len(TEXTS), 2 * len(TEXTS))


@pytest.mark.parametrize("kind", ["openai", "preferences", "parquet", "verl"])
def test_each_export_takes_every_row(stored: Store, kind: str, tmp_path: Path) -> None:
    source = KINDS[kind].source
    rows = rows_of(stored, source)
    made = KINDS[kind].make(rows, ExportOptions())
    assert made.accepted + sum(made.rejected.values()) == rows.height
    if kind == "openai":
        assert (made.accepted, len(made.rows)) == (rows.height, len(TEXTS))
    if isinstance(made.rows, list):
        # polars, like pyarrow, refuses a whole file for one escape of half a surrogate pair.
        path = tmp_path / "rows.jsonl"
        path.write_bytes("".join(f"{line}\n" for line in made.rows).encode())
        assert (pl.read_ndjson(path).height if made.rows else 0) == len(made.rows)
    else:
        made.rows.write_parquet(tmp_path / "rows.parquet")
        assert pl.read_parquet(tmp_path / "rows.parquet").height == made.accepted
