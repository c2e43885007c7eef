"""Recordings of many programs in one store give the episodes that each gives alone, even where their ids collide."""

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.converters import Converted, frames

from . import converters_recordings as recordings
from .converters_world import convert

Episodes = set[tuple[str, ...]]
"""The trace ids of each episode."""

CONVERSATION_KEYS = ("gen_ai.conversation.id", "session.id", "thread_id", "conversation.id")
_SHORTEST_ID = 4
"""Shorter texts, such as ``1``, are in too many other places to be replaced."""


class Recorded(NamedTuple):
    """The rows of one recording."""

    spans: pl.DataFrame
    logs: pl.DataFrame

    def convert(self) -> Converted:
        scores, generations = frames.empty(frames.SCORES), frames.empty(frames.GENERATIONS)
        return convert(self.spans, scores=scores, generations=generations, logs=self.logs)

    def later(self, by: timedelta) -> "Recorded":
        return Recorded(*(rows.with_columns(pl.col("Timestamp") + by) for rows in self))

    def of_service(self, name: str) -> "Recorded":
        return self._replace(spans=self.spans.with_columns(ServiceName=pl.lit(name)))


def names() -> list[str]:
    folders = (recordings.OWN, recordings.RECORDINGS)
    return sorted({path.stem for folder in folders for path in folder.glob("*.json")})


def rows_of(recording: dict[str, Any]) -> Recorded:
    return Recorded(recordings.span_frame(recording["spans"]), recordings.log_frame(recording.get("log_events", ())))


def framework_ids(converted: Converted) -> Iterator[str]:
    """Ids of responses and tool calls, in the order of the steps."""
    for row in converted.transitions.sort("episode_id", "step").iter_rows(named=True):
        yield row["response_id"]
        for message in (*json.loads(row["state"]), json.loads(row["action"])):
            yield from (part.get("id") or "" for part in message.get("parts", ()))


@cache
def original() -> dict[str, Recorded]:
    return {name: rows_of(recordings.load(name)) for name in names()}


@cache
def original_alone() -> dict[str, Converted]:
    return {name: rows.convert() for name, rows in original().items()}


@cache
def colliding() -> dict[str, Recorded]:
    """The recordings, each with its ids replaced by ``id_0001``, ``id_0002`` and so on."""
    found: dict[str, Recorded] = {}
    for name, converted in original_alone().items():
        text = json.dumps(recordings.load(name))
        ids = [*framework_ids(converted), *conversation_ids(original()[name].spans)]
        long_enough = [identity for identity in ids if len(identity) >= _SHORTEST_ID]
        counted = {identity: f"id_{number:04d}" for number, identity in enumerate(dict.fromkeys(long_enough), start=1)}
        for identity in sorted(counted, key=len, reverse=True):
            text = text.replace(identity, counted[identity])
        found[name] = rows_of(json.loads(text))
    return found


@cache
def colliding_alone() -> dict[str, Converted]:
    return {name: rows.convert() for name, rows in colliding().items()}


def conversation_ids(spans: pl.DataFrame) -> list[str]:
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    found: list[str] = (
        items.filter(pl.col("key").is_in(CONVERSATION_KEYS))["value"].unique(maintain_order=True).to_list()
    )
    return found


def episodes(converted: Converted) -> Episodes:
    return {tuple(sorted(traces)) for traces in converted.episodes["trace_ids"].to_list()}


def together(recorded: Iterable[Recorded]) -> Episodes:
    return episodes(Recorded(*map(pl.concat, zip(*recorded, strict=True))).convert())


def of_each(converted: Iterable[Converted]) -> Episodes:
    return {traces for found in converted for traces in episodes(found)}


def test_recordings_in_one_store_are_the_episodes_of_each_alone() -> None:
    assert together(original().values()) == of_each(original_alone().values())


@pytest.mark.slow
@pytest.mark.parametrize("differ", ["service", "time"])
def test_ids_that_collide_join_no_two_programs(differ: str) -> None:
    apart = (
        rows.of_service(f"program {number}") if differ == "service" else rows.later(timedelta(hours=number))
        for number, rows in enumerate(colliding().values())
    )
    assert together(apart) == of_each(colliding_alone().values())


def test_a_bare_loop_is_one_episode_whatever_its_ids_are() -> None:
    loops = [name for name in names() if "loop" in name]
    assert loops
    for name in loops:
        assert episodes(colliding_alone()[name]) == episodes(original_alone()[name]), name


@pytest.mark.slow
def test_recordings_without_scopes_give_the_same_rows() -> None:
    """The SDK's ``to_json`` leaves scopes out."""
    for name, rows in original().items():
        bare = rows._replace(spans=rows.spans.with_columns(ScopeName=pl.lit("")))
        converted, expected = bare.convert(), original_alone()[name]
        for table in ("episodes", "transitions", "trajectories", "failures"):
            assert_frame_equal(getattr(converted, table), getattr(expected, table))
